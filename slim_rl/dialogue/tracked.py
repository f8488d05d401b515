"""Metrics of a training step's dialogues for a tracker, the same for every trainer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from slim_rl.dialogue.measures import OF_KIND, annotated, measures, not_measured, reason_of, shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import game_of
from slim_rl.measured import measured

TRACKED = "dialogue/"  # prefix of the names of `batch_metrics` in a tracker


def tracked(environment: str) -> list[str]:
    """Returns the names of the measures that a tracker gets of a game's dialogues."""
    kinds = measured(game_of(environment)).question_kinds
    return [*(measure.name for measure in shown_in("tracker")), *(OF_KIND + kind for kind in kinds)]


def batch_metrics(dialogues: Sequence[Dialogue]) -> dict[str, float]:
    """Returns flat metrics of one training step's annotated dialogues, under the names of `measures`.

    Over the dialogues that did not fail:
        means of the measures shown in a tracker and of each kind of question, without NaN; turns_p50, turns_p95.
    Over all dialogues:
        failed (share), stop/<reason> (shares), failure/<reason> (counts), partner_seconds_p50, partner_seconds_p95 (per turn).
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


def _mean(out: dict[str, float], name: str, values: Sequence[float]) -> None:
    known = [value for value in values if not math.isnan(value)]
    if known:
        out[name] = fmean(known)


def _spread(out: dict[str, float], name: str, values: Sequence[float]) -> None:
    if values:
        out[f"{name}_p50"], out[f"{name}_p95"] = (float(q) for q in np.percentile(values, (50, 95)))
