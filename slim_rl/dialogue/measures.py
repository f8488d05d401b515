"""Table of measures of a dialogue: name, computation, title, unit, places; and their means over a training step.

Invariants:
    Every place that shows measures reads `MEASURES`: step line, trackers, terminal tables, report, experiment page and model card.
    A new measure is one entry of that table.

Measures count the annotations of the policy's turns (see `record.Turn`) and add none. A turn without annotations asks nothing.
A forced turn is not the policy's: it is counted apart (`questions_forced`), and in no other measure of what the policy does.
`questions` seek information; `questions_any` are of any kind. Each kind that the game names (`Instrument.question_kinds`)
is counted as `questions/<kind>`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np

from slim_rl.dialogue.record import WITHOUT_RESULT, Dialogue, StopReason, Turn, Usage
from slim_rl.environment import game_of
from slim_rl.measured import measured, says

Place = Literal["step", "step end", "tracker", "card", "first screen", "report", "experiment", "experiment table"]
TRACKED = "dialogue/"  # prefix of the names of `batch_metrics` in a tracker
OF_KIND = "questions/"  # begins the name of the count of one kind of question
NAN = math.nan
_SHARE, ANY = (0.0, 1.0), (-math.inf, math.inf)  # ranges of measures


class Played:
    """Dialogue that measures are computed from. `played["words"]` is another measure of it, computed once.

    Attributes:
        seat_turns: turns in the policy's seat, those forced on it included.
        policy_turns: the policy's turns, without those forced on it.
        valid: the policy's turns that the game accepted.
        asking: the policy's turns that ask anything.
    """

    __slots__ = ("_known", "asking", "dialogue", "policy_turns", "seat_turns", "valid")

    def __init__(self, dialogue: Dialogue) -> None:
        self.dialogue = dialogue
        self.seat_turns = [turn for turn in dialogue.turns if turn.role == "policy"]
        self.policy_turns = [turn for turn in self.seat_turns if not turn.forced]
        self.valid = [turn for turn in self.policy_turns if turn.action is not None and turn.error is None]
        self.asking = [turn for turn in self.policy_turns if turn.questions]
        self._known: dict[str, float] = {}

    def __getitem__(self, name: str) -> float:
        if name not in self._known:
            self._known[name] = MEASURES[name].of(self)
        return self._known[name]


@dataclass(frozen=True, slots=True)
class Measure:
    """Number that is computed per dialogue.

    Attributes:
        name: name in frames of logs, trackers and contrasts.
        title: heading of tables and axes.
        of: function of a dialogue; NaN if there is nothing to measure, such as a share of nothing.
        unit: unit for axes; "%" for a share shown in per cent.
        better: direction of an improvement, which colours a change; "" for neither.
        shown: places that show it: "step" (line of each training step), "step end" (end of that line, if there is room),
            "tracker" (all backends), "card" (model card), "report", "first screen" (of the report, and printed by commands),
            "experiment" (table and figure), "experiment table" (table only).
        role: "primary" for measures of the hypothesis, whose p values are corrected as one family; "secondary" for measures with
            uncorrected intervals.
        within: range of the values, and so of intervals of their mean.
        needs: annotations, one of which the game must fill in; "": none.
        short: heading for narrow tables; "": the title.
        brief: name on the step line; "": the name.
    """

    name: str
    title: str
    of: Callable[[Played], float]
    unit: str = ""
    better: Literal["up", "down", ""] = ""
    shown: tuple[Place, ...] = ("report",)
    role: Literal["primary", "secondary"] = "secondary"
    within: tuple[float, float] = (0.0, math.inf)
    needs: str = ""
    short: str = ""
    brief: str = ""

    @property
    def share(self) -> bool:
        """Returns True if the measure is shown in per cent."""
        return self.unit == "%"

    @property
    def span(self) -> float:
        """Returns the largest possible difference of two values."""
        return self.within[1] - self.within[0]

    @property
    def about(self) -> dict[str, Any]:
        """Returns what pages and figures show next to its numbers."""
        return {"title": self.title, "unit": self.unit, "share": self.share, "better": self.better, "role": self.role}

    @property
    def heading(self) -> str:
        """Returns the short heading; without one, the title."""
        return self.short or self.title


def _share(part: float, whole: float) -> float:
    return part / whole if whole else NAN


def _asked(played: Played) -> list[set[tuple[Any, ...]]]:
    return [set(turn.pairs or ()) for turn in played.asking]


def _values(turns: Iterable[Turn], annotation: str) -> list[Any]:
    """Returns an annotation's values, of the turns that have it."""
    return [value for turn in turns if (value := getattr(turn, annotation)) is not None]


def _average(turns: Iterable[Turn], annotation: str) -> float:
    values = _values(turns, annotation)
    return _share(sum(values), len(values))


def _redundant(played: Played) -> float:
    seeking = [turn for turn in played.asking if turn.seeking and turn.redundant is not None]
    return _share(sum(len(turn.redundant or ()) for turn in seeking), sum(len(turn.pairs or ()) for turn in seeking))


def _agreed(played: Played) -> float:
    dialogue = played.dialogue
    proposals = dialogue.annotator_version is None or any(turn.proposes is not None for turn in played.seat_turns)
    return float(dialogue.stop_reason is StopReason.AGREED) if proposals or not played.seat_turns else NAN


_VALUED = "question_value gain state_value"
_ALL: tuple[Place, ...] = ("step", "tracker", "card", "first screen", "report")

# In display order. A share or rate of nothing is NaN, and so is the reward of a failed dialogue.
_TABLE = (
    Measure("reward", "reward", lambda d: NAN if d.dialogue.reward is None else d.dialogue.reward,
            "of the best score", "up", (*_ALL, "experiment"), role="primary", within=_SHARE),
    # Turns that seek information
    Measure("questions", "information-seeking questions per game", lambda d: sum(t.seeking is True for t in d.asking),
            "questions", "up", (*_ALL, "experiment"), role="primary", short="questions per game", needs="seeking"),
    # Each counted once
    Measure("pairs_asked", "pairs asked about per game", lambda d: len(set().union(*_asked(d))),
            "pairs", "up", ("step", "tracker", "report"), short="pairs asked", brief="pairs", needs="pairs"),
    # The other seat knows their scores, whether or not it answered
    Measure("learnable_pairs", "learnable pairs asked about per game",
            lambda d: sum(map(len, _values(d.asking, "learnable"))),
            "pairs", "up", ("tracker", "report", "experiment"), short="learnable pairs", needs="learnable"),
    # Their scores were received in reply to a question about them, and were new to the asker
    Measure("informative_pairs", "informative pairs per game",
            lambda d: sum(map(len, _values(d.asking, "informative"))),
            "pairs", "up", ("tracker", "card", "first screen", "report"), role="primary",
            short="informative pairs", needs="informative"),
    Measure("question_value", "total question value per game",
            lambda d: sum(_values(d.asking, "question_value"), 0.0),
            "of the best score", "up", ("tracker", "report"), role="primary", within=ANY, short="question value", needs=_VALUED),
    # A proposal was accepted; NaN in a game without proposals
    Measure("agreed", "games agreed", _agreed,
            "%", "up", (*_ALL, "experiment table"), within=_SHARE),
    Measure("answered", "information-seeking questions answered",
            lambda d: _share(sum(t.seeking is True and t.answered is True for t in d.asking), d["questions"]),
            "%", "up", ("tracker", "report"), within=_SHARE, needs="answered"),
    # Over questions about pairs: the highest expected value of a question minus that of the one asked
    Measure("regret", "regret per question", lambda d: _average(d.asking, "regret"),
            "of the best score", "down"),
    # Over questions about one unknown pair, among the pairs not asked about before; 0.5 for a random question
    Measure("question_rank", "rank of the question's expected value",
            lambda d: _average(d.asking, "question_rank"), better="up", within=_SHARE, short="question rank"),
    Measure("redundant", "pairs known or asked before", _redundant, "%", "down", within=_SHARE,
            short="redundant pairs"),
    # Before its first turn
    Measure("unknown", "unknown pairs before the first turn",
            lambda d: next(map(float, _values(d.seat_turns, "unknown")), NAN), "pairs"),
    Measure("questions_per_message", "information-seeking questions per message",
            lambda d: _share(d["questions"], d["messages"]), "questions", needs="seeking"),
    Measure("questions_per_100_words", "information-seeking questions per 100 words",
            lambda d: _share(100 * d["questions"], d["words"]), "questions", needs="seeking"),
    Measure("informative_pairs_per_message", "informative pairs per message",
            lambda d: _share(d["informative_pairs"], d["messages"]), "pairs", "up", needs="informative"),
    Measure("question_value_per_100_words", "question value per 100 words",
            lambda d: _share(100 * d["question_value"], d["words"]), "of the best score", "up", within=ANY, needs=_VALUED),
    Measure("questions_any", "questions of any kind per game", lambda d: len(d.asking),
            "questions", shown=("tracker", "report"), needs="questions"),
    # New to the policy, and received in reply to a message that does not count as a question about them
    Measure("pairs_volunteered", "pairs volunteered per game",
            lambda d: sum(map(len, _values(d.seat_turns, "volunteered"))),
            "pairs", shown=("tracker", "report"), short="pairs volunteered", needs="volunteered"),
    # Injected by an evaluation
    Measure("questions_forced", "forced questions per game",
            lambda d: sum(t.forced and t.seeking is True for t in d.seat_turns),
            "questions", shown=("tracker", "report"), short="forced questions", needs="seeking"),
    Measure("informative_forced", "informative pairs of forced questions per game",
            lambda d: sum(len(t.informative or ()) for t in d.seat_turns if t.forced), "pairs", shown=(), needs="informative"),
    # Times that a pair was asked about again
    Measure("repeats", "pairs asked about again, per game", lambda d: sum(map(len, _asked(d))) - d["pairs_asked"],
            "pairs", "down", ("tracker", "report"), needs="pairs"),
    # Turns whose words are not a sentence; NaN where none was judged
    Measure("malformed", "malformed messages per game",
            lambda d: sum(judged) if (judged := _values(d.policy_turns, "malformed")) else NAN,
            "messages", "down", ("tracker", "report")),
    Measure("malformed_share", "malformed messages", lambda d: _average(d.policy_turns, "malformed"),
            "%", "down", ("report", "experiment table"), within=_SHARE),
    # Words that the game's reader could not read, to which its partners are vague; NaN where it read none
    Measure("unread", "messages not read", lambda d: _average(d.policy_turns, "unread"),
            "%", "down", ("report", "experiment table"), within=_SHARE, short="messages not read"),
    # Given its knowledge in the end
    Measure("best_known", "reward of the best known plan",
            lambda d: next(reversed(_values(d.seat_turns, "best_known")), NAN),
            "of the best score", "up", ("report", "experiment table"), within=_SHARE, short="best known plan"),
    Measure("gain", "true gain of the best plan per game",
            lambda d: sum(_values(d.asking, "gain"), 0.0), "of the best score", "up", within=ANY, needs=_VALUED),
    Measure("valid_proposals", "valid proposals among those tried",
            lambda d: _share(d["proposals"], sum(t.proposes is True for t in d.policy_turns)),
            "%", "up", ("step end", "tracker", "card", "report"), within=_SHARE,
            short="valid proposals", brief="valid"),
    Measure("proposals", "valid proposals per game", lambda d: sum(t.proposes is True for t in d.valid), shown=()),
    Measure("messages", "policy messages per game",
            lambda d: sum((t.action or {}).get("kind") == "message" for t in d.valid), "messages"),
    # A tag is no word
    Measure("words", "policy words per game",
            lambda d: sum(len(t.text.split()) - t.text.lstrip().startswith("[") for t in d.policy_turns), "words"),
    Measure("turns", "turns per game, both seats", lambda d: len(d.dialogue.turns), "turns"),
    Measure("errors", "refused policy turns per game", lambda d: sum(t.error is not None for t in d.policy_turns),
            "turns", "down"),
)  # fmt: skip
MEASURES = {measure.name: measure for measure in _TABLE}
_NEEDED = sorted({name for measure in _TABLE for name in measure.needs.split()})


def shown_in(*places: Place) -> list[Measure]:
    """Returns the measures shown in one of the places, in display order."""
    return [measure for measure in MEASURES.values() if not set(places).isdisjoint(measure.shown)]


def measures(dialogue: Dialogue | Mapping[str, Any]) -> dict[str, float | str]:
    """Returns the measures of an annotated dialogue, or of its log line, by name.

    Among them are `stop_reason` and, for each kind of question of the game, `questions/<kind>`: the turns that ask one.

    Examples:
        >>> line = {"id": "7#0", "game_id": "7", "seat": 0, "seed": 1, "game_state": {}, "policy": {}, "partner": {}}
        >>> row = measures(line | {"reward": 0.9, "stop_reason": "agreed"})
        >>> row["reward"], row["agreed"], row["questions"], row["questions/pair"], row["stop_reason"]
        (0.9, 1.0, 0, 0, 'agreed')
    """
    if not isinstance(dialogue, Dialogue):
        dialogue = Dialogue.from_dict(dict(dialogue))
    played = Played(dialogue)
    kinds = Counter(dict.fromkeys(measured(game_of(dialogue.environment)).question_kinds, 0))
    for turn in played.asking:
        kinds.update(turn.questions)
    return {
        **{name: played[name] for name in MEASURES},
        **{OF_KIND + kind: count for kind, count in kinds.items()},
        "stop_reason": reason_of(dialogue),
    }


def annotated(dialogue: Dialogue) -> str:
    """Returns the annotations that any turn of a dialogue has, joined by commas."""
    return ",".join(name for name in _NEEDED if any(getattr(turn, name) is not None for turn in dialogue.turns))


def not_measured(environment: str, annotations: Iterable[str]) -> list[str]:
    """Returns the measures that a game does not measure.

    Args:
        annotations: `annotated` of its dialogues.
    """
    present = {name for names in set(annotations) for name in names.split(",")}
    if says(game_of(environment), "annotate"):  # an annotator may skip turns that ask nothing
        present |= {"questions", "seeking"}
    return [measure.name for measure in _TABLE if measure.needs and present.isdisjoint(measure.needs.split())]


def reason_of(dialogue: Dialogue) -> str:
    """Returns the stop reason as text; "unknown" without one."""
    return dialogue.stop_reason.value if dialogue.stop_reason is not None else "unknown"


# --- a training step, for trackers


def tracked(environment: str) -> list[str]:
    """Returns the names of the measures that a tracker gets of a game's dialogues."""
    kinds = measured(game_of(environment)).question_kinds
    return [*(measure.name for measure in shown_in("tracker")), *(OF_KIND + kind for kind in kinds)]


def of_partner(name: str) -> dict[str, str]:
    """Returns the measures that a tracker gets per partner of a mixture, and their names there."""
    return {measure: f"partner/{name}/{measure}" for measure in ("reward", "questions")}


def batch_metrics(dialogues: Sequence[Dialogue]) -> dict[str, float]:
    """Returns flat metrics of one training step's annotated dialogues, under the names of `measures`.

    Over the dialogues that did not fail:
        means of the measures shown in a tracker and of each kind of question, without NaN; turns_p50, turns_p95.
    Over all dialogues:
        failed (share), stop/<reason> (shares), failure/<reason> (counts), partner_seconds_p50, partner_seconds_p95 (per turn).
    Only if there are several partners:
        partner/<name>/reward, partner/<name>/questions (means).
    Only if the partner is behind an endpoint:
        cost_usd (total), partner_retries (repeated requests per call), partner_cached (share of input tokens cached by the provider).
    """
    if not dialogues:
        return {}
    rows = [measures(dialogue) for dialogue in dialogues if not dialogue.failed]
    absent = not_measured(dialogues[0].environment, map(annotated, dialogues))
    kinds = [name for row in rows for name in row if name.startswith(OF_KIND)]
    out: dict[str, float] = {}
    for name in dict.fromkeys((*(measure.name for measure in shown_in("tracker")), *kinds)):
        if name not in absent:
            _mean(out, name, [float(row.get(name, 0)) for row in rows])
    _spread(out, "turns", [float(row["turns"]) for row in rows])
    reasons = Counter(reason_of(dialogue) for dialogue in dialogues)
    failures = Counter(reason_of(dialogue) for dialogue in dialogues if dialogue.failed)
    out["failed"] = failures.total() / len(dialogues)
    out |= {f"stop/{reason}": count / len(dialogues) for reason, count in sorted(reasons.items())}
    out |= {f"failure/{reason}": float(count) for reason, count in sorted(failures.items())}
    names = [str(dialogue.partner.get("kind")) for dialogue in dialogues if not dialogue.failed]
    for name in sorted(set(names)) if len(set(names)) > 1 else ():
        for measure, tracked_as in of_partner(name).items():
            values = [float(row[measure]) for row, of in zip(rows, names, strict=True) if of == name]
            _mean(out, tracked_as, values)
    partner = [turn for d in dialogues for turn in d.turns if turn.role == "partner"]
    _spread(out, "partner_seconds", [turn.seconds for turn in partner])
    usages = [turn.usage for turn in partner if turn.usage is not None]
    if usages:
        total = sum(usages, Usage())
        out["cost_usd"] = total.cost_usd
        if total.calls and total.input_tokens:
            out["partner_retries"] = total.retries / total.calls
            out["partner_cached"] = total.cached_tokens / total.input_tokens
    return out


def cannot_play(dialogues: Sequence[Dialogue]) -> str:
    """Returns a sentence on a policy half of whose games or more end without a result; empty for any other."""
    ended = Counter(reason_of(each) for each in dialogues if each.stop_reason in WITHOUT_RESULT)
    if not dialogues or 2 * ended.total() < len(dialogues):
        return ""
    shares: dict[str, float] = {}
    for name in ("valid_proposals", "agreed"):
        _mean(shares, name, [float(measures(each)[name]) for each in dialogues if not each.failed])
    numbers = [f"{count} {reason}" for reason, count in ended.most_common()]
    numbers += [f"{MEASURES[name].heading} {value:.0%}" for name, value in shares.items()]
    return (
        f"the policy cannot play this game: {ended.total()} of {len(dialogues)} games ended without a result ({', '.join(numbers)}). Set the "
        "game, game.rules and limits.turn_tokens that its model learned, or train an initial policy for it with slim-rl lab warmstart."
    )


def _mean(out: dict[str, float], name: str, values: Sequence[float]) -> None:
    known = [value for value in values if not math.isnan(value)]
    if known:
        out[name] = fmean(known)


def _spread(out: dict[str, float], name: str, values: Sequence[float]) -> None:
    if values:
        out[f"{name}_p50"], out[f"{name}_p95"] = (float(q) for q in np.percentile(values, (50, 95)))
