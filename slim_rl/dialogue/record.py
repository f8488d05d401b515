"""Record of one dialogue.

Invariants:
    len(loss_mask) == len(logprobs) == len(response_ids)
    loss_mask[i] == 1  <=>  response_ids[i] was sampled by the policy (its end-of-turn token included), or forced on it (`Turn.forced`)
    logprobs[i] == 0.0 where loss_mask[i] == 0
    Dialogue.from_dict(json.loads(json.dumps(d.to_dict()))) == d
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from slim_rl.config.section import current_key
from slim_rl.environment import MATCHING

FORMAT = 4  # of a log line; raised when a reader of the old one would misread the new
READABLE = (3, FORMAT)  # formats that `current_line` reads


class StopReason(StrEnum):
    """Reason why a dialogue ended. A failed dialogue shows nothing about the policy and has no reward (None)."""

    # the game was played
    AGREED = "agreed"  # a full proposal was accepted; reward is its score over the best
    FINISHED = "finished"  # another game ended by its own rules
    REJECTED = "rejected"  # the last plan that a player may propose was rejected; reward 0
    MAX_TURNS = "max_turns"  # no agreement within the game's turns; reward 0
    POLICY_ERRORS = "policy_errors"  # the policy made too many malformed actions in a row; reward 0
    TURN_TOKENS = "turn_tokens"  # a policy turn was cut at limits.turn_tokens; reward 0
    DIALOGUE_TOKENS = "dialogue_tokens"  # the policy's tokens for the whole dialogue are used up; reward 0
    CONTEXT_LENGTH = "context_length"  # the next turn does not fit the context; reward 0
    # failures, from here on
    PARTNER_ERRORS = "partner_errors"  # the partner made too many malformed actions in a row
    PARTNER_FAILED = "partner_failed"  # the partner gave no reply, after all retries
    ENGINE_FAILED = "engine_failed"  # the policy's engine gave no tokens, after all retries
    DEADLINE = "deadline"  # a turn of the policy took longer than limits.turn_seconds
    BUDGET = "budget"  # the money for partner calls is spent
    OUTAGE = "outage"  # the partner's endpoint is down, or refuses: no more calls are made
    ABORTED = "aborted"  # the trainer cancelled the dialogue
    BROKEN = "broken"  # an unexpected exception; its traceback is in the program's log

    @property
    def is_failure(self) -> bool:
        """Returns True if a dialogue that ended so has no reward."""
        return self in _FAILURES


_FAILURES = frozenset(list(StopReason)[list(StopReason).index(StopReason.PARTNER_ERRORS) :])


class DialogueOver(Exception):
    """Exception that ends a dialogue outside the game's rules. `failure`: what went wrong; None if nothing did."""

    def __init__(self, reason: StopReason, failure: str | None = None) -> None:
        super().__init__(failure or reason.value)
        self.reason, self.failure = reason, failure


@dataclass(slots=True)
class Turn:
    """Attempted action of one seat. A player returns it with its text; the loop fills in the rest.

    Attributes:
        text: input of the game, without a policy's thoughts, such as "[message] What is Ava Li on BLEU?".
        seat: seat of the author.
        role: "policy" or "partner", as seen from the dialogue's seat.
        action: the game's reading of it; None if malformed. For the matching game ``{"kind": ..., "assignment": ...}``.
        error: reason why the game refused it; or why a partner whose call cost money gave no reply (the text is empty).
        thought: the author's reasoning before the text; None without any.
        span: [start, end) of its tokens in response_ids; None for a partner.
        seconds: time taken to produce the turn.
        usage: `dialogue.partner.Usage` of API calls, a dict in the record; None without calls.
        forced: whether an intervention wrote it in place of a policy with tokens (`interventions`).
        cut: the limit that cut it short, as a player returns it; None in the record.
        observation: the game's own answer to the author, as in a one-seat game; None if the other seat answers.
        belief: log-probability in nats of the truth as this turn, given its tag (`lab.belief`); None, and not in the log, if not computed.

    Annotations, filled in by the game's annotator when the dialogue is logged, and None before:
        questions: kinds of question it asks, such as "pair" and "check"; empty if it asks nothing.
        seeking: whether it seeks information, rather than agreement or talk about the game itself.
        pairs: items it asks about; in the matching game (reviewer, paper) indices.
        learnable: pairs asked about for the first time that the other seat knows and the author does not.
        informative: pairs whose value the reply stated, and which the author did not know.
        volunteered: pairs new to the author that the reply stated although no question about them is counted.
        unread: whether the game's reader could not read its words; None if it did not try.
        malformed: whether its words are not a sentence; None if not judged.
        proposes: whether it is a proposal, valid or refused; None in a game without proposals.
        stated: pairs whose value it states.
        named_in_rejection: pairs that it names when it rejects a plan, which reveals something about them too.
        answered: whether the other seat's next turn answered it; None if it seeks no information.
        redundant: pairs that it seeks although the author knew them or had asked about them before.
        question_value, gain, regret: worth of the question as shares of the best score; None if it seeks no information.
        question_rank: rank of the pair asked about among all unknown pairs not asked about before, by expected value: 0 below all
            others, 1 above, ties half. None unless it asks about exactly one such pair.
        unknown: pairs of the board that the policy does not know before this turn of its own; None without such a board.
        state_value: expected score of the best action given what the policy knows before this turn, as a share of the best.
        best_known: on the policy's last turn, score of the best plan given all it knew, as a share of the best; else None.
    """

    text: str
    seat: int = 0
    role: str = ""
    action: dict[str, Any] | None = None
    error: str | None = None
    thought: str | None = None
    span: tuple[int, int] | None = None
    seconds: float = 0.0
    usage: Any = None
    forced: bool = False
    cut: StopReason | None = None
    observation: str | None = None
    belief: float | None = None
    questions: list[str] | None = None
    seeking: bool | None = None
    pairs: list[tuple[Any, ...]] | None = None
    learnable: list[tuple[Any, ...]] | None = None
    informative: list[tuple[Any, ...]] | None = None
    volunteered: list[tuple[Any, ...]] | None = None
    malformed: bool | None = None
    unread: bool | None = None
    proposes: bool | None = None
    redundant: list[tuple[Any, ...]] | None = None
    stated: list[tuple[Any, ...]] | None = None
    named_in_rejection: list[tuple[Any, ...]] | None = None
    answered: bool | None = None
    question_value: float | None = None
    gain: float | None = None
    regret: float | None = None
    question_rank: float | None = None
    unknown: int | None = None
    state_value: float | None = None
    best_known: float | None = None

    def clear_annotations(self) -> None:
        """Sets every annotation to None, as before the game's annotator ran."""
        for name in ANNOTATIONS:
            setattr(self, name, None)


@dataclass(slots=True)
class Dialogue:
    """Record of one dialogue from one policy seat: turns, tokens, reward and origin.

    Attributes:
        prompt_ids, response_ids, loss_mask, logprobs: a trainer's input; empty for a policy that plays by text alone.
        tokens: their counts (prompt, response, policy), in a log line without them.
        columns: the annotator's facts about the whole dialogue: name -> number, word or truth value.
        annotator_version: version of the game's annotator (`MeasuredEnvironment.annotator_version`); None if not annotated.
        settings: the run's settings (`config.learned`), which identify its arm and seed; empty in old logs.
        price: question cost in this game, if the policy reads it; None otherwise.
    """

    id: str
    game_id: str
    seat: int
    seed: int
    game_state: dict[str, Any]
    policy: dict[str, Any]
    partner: dict[str, Any]
    environment: str = MATCHING
    run: str = ""
    arm: str = ""
    step: int | None = None
    phase: str = "train"
    group: str = ""
    prompt: list[dict[str, str]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    reward: float | None = None
    stop_reason: StopReason | None = None
    failure: str | None = None
    seconds: float = 0.0
    price: float | None = None
    tokens: dict[str, int] | None = None
    columns: dict[str, float | str] = field(default_factory=dict)
    annotator_version: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Returns True if the dialogue ended by a failure, without a reward."""
        return self.stop_reason is not None and self.stop_reason.is_failure

    def to_dict(self, tokens: bool = True) -> dict[str, Any]:
        """Returns a JSON-able dict that shares its inner values; without the four token lists if `tokens` is False."""
        data = {name: getattr(self, name) for name in _DIALOGUE_FIELDS if tokens or name not in _TOKEN_LISTS}
        data["turns"] = [
            {name: getattr(turn, name) for name in _TURN_FIELDS if name != "belief" or turn.belief is not None}
            for turn in self.turns
        ]
        data["stop_reason"] = self.stop_reason.value if self.stop_reason else None
        data["format"] = FORMAT
        if not tokens and (self.prompt_ids or self.response_ids):  # else the counts of the line it was read from stay
            data["tokens"] = {
                "prompt": len(self.prompt_ids),
                "response": len(self.response_ids),
                "policy": sum(self.loss_mask),
            }
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Dialogue:
        """Reads a dict of `to_dict`, of format 3 too, and ignores unknown keys.

        A line that lacks an annotation is not annotated.
        """
        data = current_line(data)
        values = {key: value for key, value in data.items() if key in _DIALOGUE_FIELDS}
        turns = data.get("turns", [])
        values["turns"] = [_turn(turn) for turn in turns]
        values["stop_reason"] = StopReason(data["stop_reason"]) if data.get("stop_reason") else None
        if turns and not turns[0].keys() >= ANNOTATIONS:
            values["annotator_version"] = None
        return cls(**values)


_TOKEN_LISTS = ("prompt_ids", "response_ids", "loss_mask", "logprobs")
_DIALOGUE_FIELDS = tuple(f.name for f in fields(Dialogue))
_TURN_FIELDS = tuple(f.name for f in fields(Turn) if f.name != "cut")
# The fields of a turn that its game's annotator fills in
ANNOTATIONS = frozenset(_TURN_FIELDS[_TURN_FIELDS.index("questions") :])
_PAIRS = ("pairs", "learnable", "informative", "volunteered", "redundant", "stated", "named_in_rejection")
# Names in format 3 -> today's
_LINE_NAMES = {"instrument": "annotator_version"}
_TURN_NAMES = {
    "put": "forced",
    "told": "stated",
    "uncounted": "volunteered",
    "doubted": "named_in_rejection",
    "promise_rank": "question_rank",
}


def current_line(data: dict[str, Any]) -> dict[str, Any]:
    """Returns a log line with today's names, those of the annotations and of the run's settings included."""
    if data.get("format", FORMAT) == FORMAT:
        return data
    line = {_LINE_NAMES.get(name, name): value for name, value in data.items()}
    if isinstance(turns := line.get("turns"), list):
        line["turns"] = [
            {_TURN_NAMES.get(name, name): value for name, value in turn.items()} if isinstance(turn, dict) else turn
            for turn in turns
        ]
    if isinstance(settings := line.get("settings"), dict):
        line["settings"] = {current_key(name): value for name, value in settings.items()}
    return {**line, "format": FORMAT}


def _turn(data: dict[str, Any]) -> Turn:
    turn = Turn(**{key: value for key, value in data.items() if key in _TURN_FIELDS})
    turn.span = tuple(turn.span) if turn.span is not None else None  # type: ignore[assignment]
    for name in _PAIRS:
        pairs = getattr(turn, name)
        setattr(turn, name, None if pairs is None else [tuple(pair) for pair in pairs])
    return turn
