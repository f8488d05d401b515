"""Check for contrasts that cannot reach significance with an experiment's number of seeds, whatever the results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from slim_rl import statistics as st
from slim_rl.formats import count
from slim_rl.lab.experiment.contrasts import Contrast, Contrasts

LEVEL = 0.05  # significance level of the (Holm) p values
_MANY = 64  # maximum number of seeds to suggest


def out_of_reach(contrasts: Contrasts, seeds: Mapping[str, Collection[int]]) -> Iterator[str]:
    """Yields a sentence if primary contrasts among arms with these seeds cannot reach the level."""
    runs = {arm: len(set(numbers)) for arm, numbers in seeds.items()}
    if not (far := _far(contrasts, runs)):
        return
    enough = next((n for n in range(2, _MANY) if not _far(contrasts, dict.fromkeys(runs, n))), None)
    named = "; ".join(f"{name} (minimum Holm p {p:.3g})" for name, p in far.items())
    more = f"{enough} seeds per arm are enough" if enough else "name fewer primary contrasts"
    verb = "es" if len(far) == 1 else ""
    yield f"{count(len(far), 'primary contrast')} never reach{verb} p < {LEVEL} with these seeds: {named}; {more}."


def _far(contrasts: Contrasts, runs: Mapping[str, int]) -> dict[str, float]:
    """Returns the minimum Holm p of each primary contrast that cannot reach the level.

    Contrasts of other arms count with p = 0.
    """
    family = [one for one in contrasts.contrasts if one.role == "primary"]
    least = [_least(one, runs) for one in family]
    known = [0.0 if p is None else 1.0 if np.isnan(p) else p for p in least]
    return {
        one.name: float(p)
        for one, minimum, p in zip(family, least, st.holm(known), strict=True)
        if minimum is not None and p >= LEVEL
    }


def _least(contrast: Contrast, runs: Mapping[str, int]) -> float | None:
    """Returns the minimum p of a contrast; None without seeds of its arms, or without a permutation test."""
    sides = contrast.outcomes
    if contrast.margin is not None or any(side.arm not in runs for side in sides):
        return None
    apart = len({side.arm for side in sides}) > 1
    return st.least_p([runs[side.arm] for side in (sides if apart else sides[:1])])
