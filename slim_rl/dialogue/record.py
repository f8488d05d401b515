"""The Dialogue record. The token invariant holds for every one of them:

    len(loss_mask) == len(logprobs) == len(response_ids)
    loss_mask[i] == 1  <=>  response_ids[i] was sampled by the policy (its end-of-turn token included), or forced on it (`Turn.forced`)
    logprobs[i] == 0.0 where loss_mask[i] == 0

It survives JSON: `Dialogue.from_dict(json.loads(json.dumps(d.to_dict())))` equals `d`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from slim_rl.environment import MATCHING

FORMAT = 4  # of a log line; raised when a reader of the old one would misread the new
READABLE = (3, FORMAT)  # formats that `current_line` reads


class StopReason(StrEnum):
    """Why a dialogue ended. A dialogue with one of the failures says nothing about the policy: it has no reward (None)."""

    # the game was played
    AGREED = "agreed"  # a full proposal was accepted; reward is its score over the best
    FINISHED = "finished"  # a game of another kind came to its own end
    REJECTED = "rejected"  # the last plan that a player may propose was rejected; reward 0
    MAX_TURNS = "max_turns"  # no agreement within the game's turns; reward 0
    POLICY_ERRORS = "policy_errors"  # the policy made too many malformed actions in a row; reward 0
    TURN_TOKENS = "turn_tokens"  # a policy turn was cut at the tokens a turn may have; reward 0
    DIALOGUE_TOKENS = "dialogue_tokens"  # the policy's tokens for the whole dialogue are used up; reward 0
    CONTEXT_LENGTH = "context_length"  # the next turn does not fit the context; reward 0
    # failures, from here on
    PARTNER_ERRORS = "partner_errors"  # the partner made too many malformed actions in a row
    PARTNER_FAILED = "partner_failed"  # the partner gave no reply at all, retries included
    ENGINE_FAILED = "engine_failed"  # the policy's engine gave no tokens, retries included
    DEADLINE = "deadline"  # a turn of the policy took longer than it may
    BUDGET = "budget"  # the money for partner calls is spent
    OUTAGE = "outage"  # the partner's endpoint is down for good, or refuses: no more calls are made
    ABORTED = "aborted"  # the trainer called the dialogue off
    BROKEN = "broken"  # something in the program broke that should not have; the log has the traceback

    @property
    def is_failure(self) -> bool:
        return self in _FAILURES


_FAILURES = frozenset(list(StopReason)[list(StopReason).index(StopReason.PARTNER_ERRORS) :])


class DialogueOver(Exception):
    """A dialogue ends here, for a reason that is not the game's. `failure`: what went wrong, if something did."""

    def __init__(self, reason: StopReason, failure: str | None = None) -> None:
        super().__init__(failure or reason.value)
        self.reason, self.failure = reason, failure


@dataclass(slots=True)
class Turn:
    """One action tried by one seat. A player returns it with its words; the loop fills in the rest.

    Attributes:
        text: what the game was given (a policy's thoughts taken off), such as "[message] What is Ava Li on BLEU?".
        seat: its author.
        role: "policy" or "partner", as this dialogue's owner sees it.
        action: what the game made of it, or None if malformed. For the matching game ``{"kind": ..., "assignment": ...}``.
        error: why the game refused it; of a partner that gave no reply, though it was paid for, why there is none (the text is empty).
        thought: what the policy thought before it spoke, if it thinks aloud.
        span: [start, end) of its tokens in response_ids; None for a partner.
        seconds: time taken to produce the turn.
        usage: what API calls took, if there were any: a player's `dialogue.partner.Usage`, in the record as a dict.
        forced: whether an intervention wrote it in place of a policy with tokens (`interventions`).
        cut: the limit that cut it short, as a player returns it; None in the record.
        observation: what the game itself answered its author, as in a one-seat game; None where the other seat answers.

    Annotations, filled in by the game's annotator when the dialogue is logged, and None before:
        questions: the kinds of question it asks, such as "pair" and "check"; empty if it asks nothing.
        seeking: whether it seeks information, as opposed to agreement or to talk about the game itself.
        pairs: what it asks about; for the matching game (reviewer, paper) indices.
        learnable: those of `pairs` that it asks about for the first time, and that the other seat knows and its author does not.
        informative: those of `pairs` whose value the reply told, and that its author neither saw nor had been told.
        volunteered: what else the reply told that was new to its author, though no question of the turn is counted for it.
        unread: whether the game's reader could not read its words; None if it did not try.
        malformed: whether its words are not a sentence; None if it was not judged.
        proposes: whether it tries to propose, be it refused; None in a game without proposals.
        stated: those whose value it states.
        named_in_rejection: those that it names in rejecting a plan, which tells something of them too.
        answered: whether the other seat's next turn answered what was asked; None if no information was asked for.
        redundant: those of `pairs` that it seeks although its author knew them or had sought them before.
        question_value, gain, regret: of the question, as shares of the best score; None if it asks for no information.
        question_rank: where what it asks about stands among all that could have been asked about instead, not known and not sought
            before, by what each was expected to bring: 0 below all of them, 1 above, ties half. None but for a question about one such.
        unknown: before a policy's turn, how many pairs of the board it does not know; None in a game without such a board.
        state_value: before a policy's turn, the score expected of the best action by what it then knows, as a share of the best.
        best_known: on the policy's last turn, what the best plan by all it then knew scores, as a share of the best; else None.
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
    """One dialogue as its policy seat lived it: turns, tokens, reward, and where it came from.

    `prompt_ids`, `response_ids`, `loss_mask` and `logprobs` are what a trainer needs; `to_dict(tokens=False)` leaves them out,
    which is the form of a log line, and counts them in `tokens` (prompt, response, policy). A policy that plays by text alone
    leaves them empty. `columns` is what the game's annotator says of the whole dialogue: names, and a number, word or truth value each.
    `annotator_version` is the version of the annotator that its turns are annotated by (`MeasuredEnvironment.annotator_version`);
    None before, and where the game could not be loaded. `settings` are the run's (`config.learned`): what tells its arm and seed; empty in
    older logs. `price` is what a question cost in it, where the policy was told.
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
        return self.stop_reason is not None and self.stop_reason.is_failure

    def to_dict(self, tokens: bool = True) -> dict[str, Any]:
        """A JSON-able dict, which shares its inner values with the dialogue; without the four token lists if `tokens` is False."""
        data = {name: getattr(self, name) for name in _DIALOGUE_FIELDS if tokens or name not in _TOKEN_LISTS}
        data["turns"] = [{name: getattr(turn, name) for name in _TURN_FIELDS} for turn in self.turns]
        data["stop_reason"] = self.stop_reason.value if self.stop_reason else None
        data["format"] = FORMAT
        if not tokens and (self.prompt_ids or self.response_ids):  # else what was counted when they were left out stays
            data["tokens"] = {
                "prompt": len(self.prompt_ids),
                "response": len(self.response_ids),
                "policy": sum(self.loss_mask),
            }
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Dialogue:
        """Reads what `to_dict` wrote, in format 3 too; unknown keys are ignored. A line that lacks an annotation counts as not annotated."""
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
# The fields of a turn that its game's annotator fills in: those after what was said and how
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
_SETTING_NAMES = {"partner.doubts": "partner.explain_rejections", "train.payment": "train.reward"}


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
        line["settings"] = {_setting_name(name): value for name, value in settings.items()}
    return {**line, "format": FORMAT}


def _setting_name(name: str) -> str:
    moved = name.replace("train.payment_args.", "train.reward_args.")
    return _SETTING_NAMES.get(moved, moved)


def _turn(data: dict[str, Any]) -> Turn:
    turn = Turn(**{key: value for key, value in data.items() if key in _TURN_FIELDS})
    turn.span = tuple(turn.span) if turn.span is not None else None  # type: ignore[assignment]
    for name in _PAIRS:
        pairs = getattr(turn, name)
        setattr(turn, name, None if pairs is None else [tuple(pair) for pair in pairs])
    return turn
