"""What is measured of a dialogue: one flat dict. Counts the annotations of its turns (see `record.Turn`), of any game, and
adds none: a turn without annotations asks nothing.

All counts are of the policy's turns. `questions` are those that seek information, here and in every table, figure and tracker;
`questions_any` are questions of any kind.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from slim_rl.dialogue.record import Dialogue, StopReason, Turn

LABELS = ("pair", "open", "check", "process")  # kinds of question that are counted even where there are none
_MEANS = (
    "reward",
    "questions",
    "questions_any",
    "pairs_asked",
    "learnable_pairs",
    "informative_pairs",
    "told_uncounted",
    "doubts_told",
    "repeats",
    "malformed",
    "value",
    "answered",
    "agreed",
    "valid_proposals",
)


def measures(dialogue: Dialogue | Mapping[str, Any]) -> dict[str, float | str]:
    """The measures of an annotated dialogue, or of its log line.

    Keys:
        questions: turns that seek information; questions_any: turns that ask anything; one key a label: turns so labelled.
        pairs_asked: pairs asked about, each counted once; repeats: times one was asked about again.
        learnable_pairs: pairs first asked about that the asker could learn from the other seat, answered or not.
        informative_pairs: pairs whose value the reply to a question about them told, and that were new to the asker.
        told_uncounted: pairs new to the policy that it was told in reply to a message of which no question is counted for them.
        doubts_told: pairs that the other seat named in rejecting plans.
        malformed: turns whose words are not a sentence; malformed_share: of those judged. NaN where none was.
        value, gain: the questions' worth, summed; regret: its mean over questions about pairs. Shares of the best score.
        answered: share of information-seeking questions that were answered.
        best_known: what the best plan by all it knew in the end would have scored, as a share of the best; NaN if not annotated.
        reward; agreed: 1 if a proposal was accepted, else 0; stop_reason.
        proposals: valid ones; valid_proposals: their share of those tried.
        messages: valid messages; words: in all its turns, tags not counted; turns: of both seats; errors: turns that the game refused.
        X_per_message, X_per_100_words: for questions, pairs_asked, informative_pairs, repeats, value.

    A share or rate of nothing, and the reward of a failed dialogue, is NaN.
    """
    if not isinstance(dialogue, Dialogue):
        dialogue = Dialogue.from_dict(dict(dialogue))
    labels = Counter(dict.fromkeys(LABELS, 0))
    asked: set[tuple[Any, ...]] = set()
    questions = questions_any = informative = uncounted = repeats = answered = proposals = tried = messages = words = (
        errors
    ) = 0
    value = gain = 0.0
    best_known = math.nan
    regrets: list[float] = []
    malformed: list[bool] = []
    doubts = learnable = 0
    for turn in dialogue.turns:
        if turn.role != "policy":
            doubts += len(turn.doubted or ())
            continue
        if turn.best_known is not None:
            best_known = turn.best_known
        words += len(turn.text.split()) - turn.text.lstrip().startswith("[")  # the tag is not a word
        errors += turn.error is not None
        tried += _is_proposal(turn)
        kind = turn.action.get("kind") if turn.action is not None and turn.error is None else None
        proposals += kind == "propose"
        messages += kind == "message"
        if turn.malformed is not None:
            malformed.append(turn.malformed)
        uncounted += len(turn.uncounted or ())
        if not turn.questions:
            continue
        questions_any += 1
        labels.update(turn.questions)
        if turn.seeking:
            questions += 1
            answered += turn.answered is True
        repeats += len(asked.intersection(turn.pairs or ()))
        asked.update(turn.pairs or ())
        learnable += len(turn.learnable or ())
        informative += len(turn.informative or ())
        value += turn.value or 0.0
        gain += turn.gain or 0.0
        if turn.regret is not None:
            regrets.append(turn.regret)
    totals = {
        "questions": questions,
        "pairs_asked": len(asked),
        "informative_pairs": informative,
        "repeats": repeats,
        "value": value,
    }
    out: dict[str, float | str] = {
        **totals,
        "questions_any": questions_any,
        **labels,
        "learnable_pairs": learnable,
        "told_uncounted": uncounted,
        "doubts_told": doubts,
        "malformed": sum(malformed) if malformed else math.nan,
        "malformed_share": _share(sum(malformed), len(malformed)),
        "gain": gain,
        "best_known": best_known,
        "regret": _share(sum(regrets), len(regrets)),
        "answered": _share(answered, questions),
        "reward": math.nan if dialogue.reward is None else dialogue.reward,
        "agreed": float(dialogue.stop_reason is StopReason.AGREED),
        "stop_reason": _reason(dialogue),
        "proposals": proposals,
        "valid_proposals": _share(proposals, tried),
        "messages": messages,
        "words": words,
        "turns": len(dialogue.turns),
        "errors": errors,
    }
    for name, total in totals.items():
        out[f"{name}_per_message"] = _share(total, messages)
        out[f"{name}_per_100_words"] = _share(100 * total, words)
    return out


def batch_metrics(dialogues: Sequence[Dialogue]) -> dict[str, float]:
    """One training step's annotated dialogues as flat metrics for a tracker, under the names of `measures`.

    Means over the dialogues that did not fail, each share of nothing left out: reward, questions, questions_any,
    questions/<label>, pairs_asked, learnable_pairs, informative_pairs, told_uncounted, doubts_told, repeats, malformed, value, answered, agreed, valid_proposals,
    turns_p50, turns_p95. Over all: failed (share), stop/<reason> (shares), failure/<reason> (counts), partner_seconds_p50,
    partner_seconds_p95 (a partner's turn). Only where the partner is behind an endpoint: cost_usd (total), partner_retries (requests
    made again, a call), partner_cached (share of its input tokens that the provider had cached).
    """
    if not dialogues:
        return {}
    played = [dialogue for dialogue in dialogues if not dialogue.failed]
    rows = [measures(dialogue) for dialogue in played]
    out: dict[str, float] = {}
    for name in _MEANS:
        _mean(out, name, [float(row[name]) for row in rows])
    asked = [label for d in played for turn in d.turns if turn.role == "policy" for label in turn.questions or ()]
    for label in dict.fromkeys((*LABELS, *asked)):
        _mean(out, f"questions/{label}", [float(row.get(label, 0)) for row in rows])
    _spread(out, "turns", [float(row["turns"]) for row in rows])
    reasons = Counter(_reason(dialogue) for dialogue in dialogues)
    failures = Counter(_reason(dialogue) for dialogue in dialogues if dialogue.failed)
    out["failed"] = failures.total() / len(dialogues)
    out |= {f"stop/{reason}": count / len(dialogues) for reason, count in sorted(reasons.items())}
    out |= {f"failure/{reason}": float(count) for reason, count in sorted(failures.items())}
    partner = [turn for d in dialogues for turn in d.turns if turn.role == "partner"]
    _spread(out, "partner_seconds", [turn.seconds for turn in partner])
    usages = [turn.usage for turn in partner if turn.usage is not None]
    if usages:
        names = ("cost_usd", "calls", "retries", "input_tokens", "cached_tokens")
        total = {name: float(sum(usage.get(name) or 0 for usage in usages)) for name in names}
        out["cost_usd"] = total["cost_usd"]
        if total["calls"] and total["input_tokens"]:
            out["partner_retries"] = total["retries"] / total["calls"]
            out["partner_cached"] = total["cached_tokens"] / total["input_tokens"]
    return out


def _is_proposal(turn: Turn) -> bool:
    return turn.text.lstrip()[:9].lower() == "[propose]" or (
        turn.action is not None and turn.action.get("kind") == "propose"
    )


def _reason(dialogue: Dialogue) -> str:
    return dialogue.stop_reason.value if dialogue.stop_reason is not None else "unknown"


def _share(part: float, whole: int) -> float:
    return part / whole if whole else math.nan


def _mean(out: dict[str, float], name: str, values: Sequence[float]) -> None:
    known = [value for value in values if not math.isnan(value)]
    if known:
        out[name] = fmean(known)


def _spread(out: dict[str, float], name: str, values: Sequence[float]) -> None:
    if values:
        out[f"{name}_p50"], out[f"{name}_p95"] = (float(q) for q in np.percentile(values, (50, 95)))
