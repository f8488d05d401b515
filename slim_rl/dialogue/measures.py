"""What is measured of a dialogue: one flat dict, always the same keys. Reads annotations (see `annotate`), computes no value.

All counts are of the policy's turns. An information-seeking question is a turn labelled `pair` or `open`; a pair is informative
when it is first asked about if the partner sees its score, the asker does not, and was not told it before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.questions.classify import LABELS

_NAN = math.nan
_RATED = ("seeking", "pairs_asked", "informative_pairs", "repeats", "value")  # also given per message and per 100 words


def measures(dialogue: Dialogue | Mapping[str, Any]) -> dict[str, float | str]:
    """The measures of an annotated dialogue, or of its log line.

    Keys:
        questions: turns that ask anything; pair, open, check, process: by label; seeking: pair or open.
        pairs_asked: pairs asked about, each counted once; repeats: times one was asked about again.
        informative_pairs: see above.
        value, gain: the questions' worth, summed; regret: its mean over questions about pairs. Shares of the best score.
        answered: share of information-seeking questions that were answered.
        reward; agreed: 0 or 1; stop_reason.
        proposals: valid ones; valid_proposals: their share of those tried.
        messages: valid messages; words: in all its turns, tags not counted; turns: of both seats; errors: turns that the game refused.
        X_per_message, X_per_100_words: for seeking, pairs_asked, informative_pairs, repeats, value.

    A share or rate of nothing, and the reward of a failed dialogue, is NaN.
    """
    if not isinstance(dialogue, Dialogue):
        dialogue = Dialogue.from_dict(dict(dialogue))
    labels: Counter[str] = Counter()
    asked: set[tuple[int, int]] = set()
    told: set[tuple[int, int]] = set()
    theirs, own = _masks(dialogue)
    questions = seeking = informative = repeats = answered = proposals = tried = messages = words = errors = 0
    value = gain = 0.0
    regrets: list[float] = []
    for turn in dialogue.turns:
        if turn.role != "policy":
            told.update(turn.told or ())
            continue
        words += len(turn.text.split()) - turn.text.lstrip().startswith("[")  # the tag is no word
        errors += turn.error is not None
        tried += _is_proposal(turn)
        kind = turn.action.get("kind") if turn.action is not None and turn.error is None else None
        proposals += kind == "propose"
        messages += kind == "message"
        if not turn.questions:
            continue
        questions += 1
        labels.update(turn.questions)
        if "pair" in turn.questions or "open" in turn.questions:
            seeking += 1
            answered += turn.answered is True
        for pair in turn.pairs or ():
            if pair in asked:
                repeats += 1
                continue
            asked.add(pair)
            r, p = pair
            informative += bool(theirs and theirs[r][p] and not own[r][p] and pair not in told)
        value += turn.value or 0.0
        gain += turn.gain or 0.0
        if turn.regret is not None:
            regrets.append(turn.regret)
    out: dict[str, float | str] = {
        "questions": questions,
        **{label: labels[label] for label in LABELS},
        "seeking": seeking,
        "pairs_asked": len(asked),
        "informative_pairs": informative,
        "repeats": repeats,
        "value": value,
        "gain": gain,
        "regret": _share(sum(regrets), len(regrets)),
        "answered": _share(answered, seeking),
        "reward": _NAN if dialogue.reward is None else dialogue.reward,
        "agreed": float(dialogue.stop_reason is StopReason.AGREED),
        "stop_reason": dialogue.stop_reason.value if dialogue.stop_reason is not None else "unknown",
        "proposals": proposals,
        "valid_proposals": _share(proposals, tried),
        "messages": messages,
        "words": words,
        "turns": len(dialogue.turns),
        "errors": errors,
    }
    totals = {
        "seeking": seeking,
        "pairs_asked": len(asked),
        "informative_pairs": informative,
        "repeats": repeats,
        "value": value,
    }
    for name in _RATED:
        out[f"{name}_per_message"] = _share(totals[name], messages)
        out[f"{name}_per_100_words"] = _share(100 * totals[name], words)
    return out


def batch_metrics(dialogues: Sequence[Dialogue]) -> dict[str, float]:
    """One training step's dialogues as flat metrics for a tracker; dialogues not yet annotated are.

    Means over the dialogues that did not fail, each share of nothing left out: reward, questions (information-seeking ones),
    questions/<label>, pairs, informative_pairs, repeats, value, answered, agreed, valid_proposals, turns_p50, turns_p95. Over
    all: failed (share), stop/<reason> (shares), failure/<reason> (counts), partner_seconds_p50, partner_seconds_p95 (a partner's
    turn), cost_usd (total; only where some turn has a cost).
    """
    if not dialogues:
        return {}
    for dialogue in dialogues:
        if any(turn.questions is None for turn in dialogue.turns):
            annotate(dialogue)
    played = [measures(dialogue) for dialogue in dialogues if not dialogue.failed]
    names = {
        "reward": "reward",
        "questions": "seeking",
        **{f"questions/{label}": label for label in LABELS},
        "pairs": "pairs_asked",
    }
    names |= {name: name for name in ("informative_pairs", "repeats", "value", "answered", "agreed", "valid_proposals")}
    out: dict[str, float] = {}
    for name, column in names.items():
        values = [float(row[column]) for row in played]
        values = [x for x in values if not math.isnan(x)]
        if values:
            out[name] = sum(values) / len(values)
    _spread(out, "turns", [float(row["turns"]) for row in played])
    reasons = Counter(d.stop_reason.value if d.stop_reason is not None else "unknown" for d in dialogues)
    failures = Counter(d.stop_reason.value for d in dialogues if d.failed and d.stop_reason is not None)
    out["failed"] = failures.total() / len(dialogues)
    out |= {f"stop/{reason}": count / len(dialogues) for reason, count in sorted(reasons.items())}
    out |= {f"failure/{reason}": float(count) for reason, count in sorted(failures.items())}
    partner = [turn for d in dialogues for turn in d.turns if turn.role == "partner"]
    _spread(out, "partner_seconds", [turn.seconds for turn in partner])
    usages = [turn.usage for turn in partner if turn.usage is not None]
    if usages:
        out["cost_usd"] = float(sum(usage.get("cost_usd") or 0.0 for usage in usages))
    return out


def _masks(dialogue: Dialogue) -> tuple[Sequence[Sequence[Any]], Sequence[Sequence[Any]]]:
    """The partner's mask and the policy's own; empty for another game."""
    masks = [dialogue.game_state.get(key) for key in ("mask1", "mask2")] if dialogue.game_state else [None, None]
    if masks[0] is None or masks[1] is None or dialogue.seat not in (0, 1):
        return (), ()
    return masks[1 - dialogue.seat], masks[dialogue.seat]  # type: ignore[return-value]


def _is_proposal(turn: Turn) -> bool:
    return turn.text.lstrip()[:9].lower() == "[propose]" or (
        turn.action is not None and turn.action.get("kind") == "propose"
    )


def _share(part: float, whole: int) -> float:
    return part / whole if whole else _NAN


def _spread(out: dict[str, float], name: str, values: list[float]) -> None:
    if values:
        out[f"{name}_p50"], out[f"{name}_p95"] = (float(q) for q in np.percentile(values, (50, 95)))
