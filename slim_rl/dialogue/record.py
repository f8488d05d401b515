"""Record of one dialogue, and the form of its log line.

Invariants:
    len(loss_mask) == len(logprobs) == len(response_ids)
    loss_mask[i] == 1  <=>  response_ids[i] was sampled by the policy (its end-of-turn token included), or forced on it (`Turn.forced`)
    logprobs[i] == 0.0 where loss_mask[i] == 0
    Dialogue.from_dict(json.loads(json.dumps(d.to_dict()))) == d

The types below are also the form of a log line: `Dialogue.from_dict` checks each value once, and every reader relies on it. Keys that are
not named here may hold anything; old lines lack some.
"""

from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from slim_rl.config.section import NAMES
from slim_rl.environment import MATCHING

FORMAT = 4  # of a log line; raised when a reader of the old one would misread the new
READABLE = (3, FORMAT)  # formats that `current_line` reads

Number = Annotated[float, Field(strict=True, ge=-1e12, le=1e12)]  # no truth value or text; sums of larger ones overflow
Count = Annotated[int, Field(strict=True, ge=0, le=10**7)]
Name = Annotated[str, Field(coerce_numbers_to_str=True)]  # another program's may be a number
if TYPE_CHECKING:
    Pairs = list[tuple[Any, ...]]  # the type of an item is its game's
else:
    Pairs = list[tuple[int | str, ...]]


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
    # failures
    PARTNER_ERRORS = "partner_errors"  # the partner made too many malformed actions in a row
    PARTNER_FAILED = "partner_failed"  # the partner gave no reply, after all retries
    ENGINE_FAILED = "engine_failed"  # the policy's engine gave no tokens, after all retries
    DEADLINE = "deadline"  # a turn took longer than limits.turn_seconds
    BUDGET = "budget"  # the money for partner calls is spent
    OUTAGE = "outage"  # the partner's endpoint is down, or refuses: no more calls are made
    ABORTED = "aborted"  # the trainer cancelled the dialogue
    BROKEN = "broken"  # an unexpected exception; its traceback is in the program's log

    @property
    def is_failure(self) -> bool:
        """Returns True if a dialogue that ended so has no reward."""
        return self in _FAILURES


PLAYED_OUT = {StopReason.AGREED, StopReason.FINISHED, StopReason.REJECTED}  # with a result
TRUNCATED = {StopReason.TURN_TOKENS, StopReason.DIALOGUE_TOKENS, StopReason.CONTEXT_LENGTH}  # by a limit
WITHOUT_RESULT = TRUNCATED | {StopReason.MAX_TURNS, StopReason.POLICY_ERRORS}
_FAILURES = frozenset(StopReason) - PLAYED_OUT - WITHOUT_RESULT


class DialogueOver(Exception):
    """Exception that ends a dialogue outside the game's rules. `failure`: what went wrong; None if nothing did."""

    def __init__(self, reason: StopReason, failure: str | None = None) -> None:
        super().__init__(failure or reason.value)
        self.reason, self.failure = reason, failure


def _message(message: dict[str, str]) -> dict[str, str]:
    if not {"role", "content"} <= message.keys():
        raise ValueError("a message has role and content")
    return message


@dataclass(frozen=True, slots=True)
class Usage:
    """Cost of a player's API calls, from the API's own usage field if that is plausible.

    Attributes:
        calls: number of answered requests.
        input_tokens, cached_tokens, output_tokens: tokens; cached ones are part of the input ones.
        cost_usd: US dollars according to the price table; 0.0 without a known price.
        retries: number of repeated requests.
        malformed: number of invalid replies that were requested again.
        model: the API's name of the model that answered; None without one.
        asides: number of replies with text outside their action, which the other player does not read.
        estimated: number of answers whose tokens are estimated from the text, since the API's count is missing or wrong.
    """

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    # null in old lines without a known price
    cost_usd: Annotated[Number, BeforeValidator(lambda usd: usd or 0.0)] = 0.0
    retries: int = 0
    malformed: int = 0
    model: str | None = None
    estimated: int = 0
    asides: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Returns the sum of both, with the later model's name."""
        sums = {name: value + getattr(other, name) for name, value in asdict(self).items() if name != "model"}
        return Usage(**sums, model=other.model or self.model)


@dataclass(slots=True, kw_only=True)
class Annotations:
    """Annotations of a turn by its game, made when the dialogue is logged; all None before.

    Attributes:
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
        answered: whether the other seat's next turn answered it; None if it seeks no information.
        redundant: pairs that it seeks although the author knew them or had asked about them before.
        question_value, gain, regret: worth of the question as shares of the best score; None if it seeks no information.
        question_rank: rank of the pair asked about among all unknown pairs not asked about before, by expected value: 0 below all
            others, 1 above, ties half. None unless it asks about exactly one such pair.
        unknown: pairs of the board that the policy does not know before this turn of its own; None without such a board.
        state_value: expected score of the best action given what the policy knows before this turn, as a share of the best.
        best_known: on the policy's last turn, score of the best plan given all it knew, as a share of the best; else None.
    """

    questions: list[str] | None = None
    seeking: bool | None = None
    pairs: Pairs | None = None
    learnable: Pairs | None = None
    informative: Pairs | None = None
    volunteered: Pairs | None = None
    malformed: bool | None = None
    unread: bool | None = None
    proposes: bool | None = None
    redundant: Pairs | None = None
    stated: Pairs | None = None
    answered: bool | None = None
    question_value: Number | None = None
    gain: Number | None = None
    regret: Number | None = None
    question_rank: Number | None = None
    unknown: Count | None = None
    state_value: Number | None = None
    best_known: Number | None = None

    def clear_annotations(self) -> None:
        """Sets every annotation to None, as before the game's annotator ran."""
        for name in ANNOTATIONS:
            setattr(self, name, None)


ANNOTATIONS = frozenset(each.name for each in fields(Annotations))


@dataclass(slots=True)
class Turn(Annotations):
    """Attempted action of one seat. A player writes the text, the loop the rest, the game's annotator the annotations.

    Attributes:
        text: input of the game, without a policy's thoughts, such as "[message] What is Ava Li on BLEU?".
        seat: seat of the author.
        role: "policy" or "partner", as seen from the dialogue's seat.
        action: the game's reading of it; None if malformed. For the matching game ``{"kind": ..., "assignment": ...}``.
        error: reason why the game refused it; or why a partner whose call cost money gave no reply (the text is empty).
        thought: the author's reasoning before the text; None without any.
        span: [start, end) of its tokens in response_ids; None for a partner.
        seconds: time taken to produce the turn.
        usage: what API calls took; None without calls.
        forced: whether an intervention wrote it in place of the policy (`lab.interventions`).
        cut: the limit that cut it short, as a player returns it; None in the record.
        observation: the game's own answer to the author, as in a one-seat game; None if the other seat answers.
    """

    text: str
    seat: int = 0
    role: str = ""
    action: dict[str, Any] | None = None
    error: str | None = None
    thought: str | None = None
    span: tuple[Count, Count] | None = None
    seconds: Number = 0.0
    usage: Usage | None = None
    forced: bool = False
    cut: StopReason | None = None
    observation: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns a JSON-able dict that shares its inner values."""
        data = {name: getattr(self, name) for name in _TURN_FIELDS}
        return data if self.usage is None else data | {"usage": asdict(self.usage)}


_TURN_FIELDS = (*(f.name for f in fields(Turn) if f.name not in ANNOTATIONS | {"cut"}), *sorted(ANNOTATIONS))


@dataclass(slots=True)
class Dialogue:
    """Record of one dialogue from one policy seat: turns, tokens, reward and origin.

    Attributes:
        prompt_ids, response_ids, loss_mask, logprobs: a trainer's input; empty for a policy that plays by text alone.
        tokens: their counts (prompt, response, policy), in a log line without them.
        columns: the annotator's facts about the whole dialogue: name -> number, word or truth value.
        annotator_version: version of the game's annotator (`Instrument.annotator_version`); None if not annotated.
        settings: the run's settings (`config.learned`), which identify its arm and seed; empty in old logs.
        price: question cost in this game, if the policy reads it; None otherwise.
    """

    id: Name
    game_id: Name
    seat: Annotated[int, Field(ge=0, le=1)]
    seed: int | None
    game_state: dict[str, Any]
    policy: dict[str, Any]
    partner: dict[str, Any]
    environment: str = MATCHING
    run: str = ""
    arm: str = ""
    step: Annotated[int, Field(ge=0, le=10**9)] | None = None
    phase: str = "train"
    group: Name = ""
    prompt: list[Annotated[dict[str, str], AfterValidator(_message)]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    reward: Number | None = None
    stop_reason: StopReason | None = None
    failure: str | None = None
    seconds: Number = 0.0
    price: Number | None = None
    tokens: dict[str, Count] | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    annotator_version: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[Number] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Returns True if the dialogue ended by a failure, without a reward."""
        return self.stop_reason is not None and self.stop_reason.is_failure

    def to_dict(self, tokens: bool = True) -> dict[str, Any]:
        """Returns a JSON-able dict that shares its inner values; without the four token lists if `tokens` is False."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        data |= {"turns": [turn.to_dict() for turn in self.turns], "format": FORMAT}
        if not tokens:
            for name in _TOKEN_LISTS:
                del data[name]
            if self.prompt_ids or self.response_ids:  # else the counts of the line it was read from stay
                counts = len(self.prompt_ids), len(self.response_ids), sum(self.loss_mask)
                data["tokens"] = dict(zip(("prompt", "response", "policy"), counts, strict=True))
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Dialogue":
        """Reads a dict of `to_dict`, of format 3 too; ignores unknown keys. A line without an annotation is not annotated.

        Raises ValueError with a sentence that names the key and its value if the dict has another form.
        """
        data = current_line(data)
        try:
            dialogue = _form().validate_python(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            # "str" and "int" name a union's members
            key = ".".join(str(part) for part in first["loc"] if part not in ("str", "int"))
            is_missing = first["type"] == "missing"
            sentence = f"it has no {key}" if is_missing else f"its {key or 'data'} is {str(first['input'])[:80]}"
            raise ValueError(sentence) from None
        if data.get("turns") and not data["turns"][0].keys() >= ANNOTATIONS:
            dialogue.annotator_version = None
        return dialogue


@cache
def _form() -> TypeAdapter[Dialogue]:
    return TypeAdapter(Dialogue)


_TOKEN_LISTS = ("prompt_ids", "response_ids", "loss_mask", "logprobs")
FORMER = NAMES["logged"] | NAMES["renamed"]  # names of earlier versions -> today's


def current_line(data: dict[str, Any]) -> dict[str, Any]:
    """Returns a log line with today's names, those of the annotations and of the run's settings included."""
    if data.get("format", FORMAT) == FORMAT:
        return data
    line = _renamed(data)
    if isinstance(turns := line.get("turns"), list):
        line["turns"] = [_renamed(turn) if isinstance(turn, dict) else turn for turn in turns]
    if isinstance(settings := line.get("settings"), dict):
        line["settings"] = _renamed(settings)
    return {**line, "format": FORMAT}


def _renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Returns a mapping with today's names; below a key of the settings the rest of its name stays."""
    return {_current(name): value for name, value in data.items()}


@cache
def _current(name: str) -> str:
    former = next((key for key in FORMER if name == key or name.startswith(f"{key}.")), "")
    return FORMER.get(former, "") + name[len(former) :]
