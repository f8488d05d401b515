"""Contrasts that an experiment's number of seeds puts out of reach: their least p is not below the level, whatever the runs do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from slim_rl import statistics as st
from slim_rl.formats import count
from slim_rl.lab.experiment.contrasts import Contrast, Contrasts

LEVEL = 0.05  # a contrast is shown if its (Holm) p is below
_MANY = 64  # seeds; a family that needs more is not helped by seeds


def out_of_reach(contrasts: Contrasts, seeds: Mapping[str, Collection[int]]) -> Iterator[str]:
    """Yields a sentence if primary contrasts among arms with these seeds cannot reach the level."""
    runs = {arm: len(set(numbers)) for arm, numbers in seeds.items()}
    if not (far := _far(contrasts, runs)):
        return
    enough = next((n for n in range(2, _MANY) if not _far(contrasts, dict.fromkeys(runs, n))), None)
    named = "; ".join(f"{name} (least Holm p {p:.3g})" for name, p in far.items())
    more = f"{enough} seeds per arm are enough" if enough else "name fewer primary contrasts"
    verb = "es" if len(far) == 1 else ""
    yield f"{count(len(far), 'primary contrast')} never reach{verb} p < {LEVEL} with these seeds: {named}; {more}."


def _far(contrasts: Contrasts, runs: Mapping[str, int]) -> dict[str, float]:
    """Returns the least Holm p of each primary contrast whose p cannot be below the level; one of other arms counts as if it were 0."""
    family = [one for one in contrasts.contrasts if one.role == "primary"]
    least = [_least(one, runs) for one in family]
    known = [0.0 if p is None else 1.0 if np.isnan(p) else p for p in least]
    return {
        one.name: float(p)
        for one, own, p in zip(family, least, st.holm(known), strict=True)
        if own is not None and p >= LEVEL
    }


def _least(contrast: Contrast, runs: Mapping[str, int]) -> float | None:
    """Returns the least p of a contrast; None if one of its arms has no seeds here, or if it is not tested by permutation."""
    sides = contrast.outcomes
    if contrast.margin is not None or any(side.arm not in runs for side in sides):
        return None
    apart = len({side.arm for side in sides}) > 1 or contrast.reaches is not None
    return st.least_p([runs[side.arm] for side in (sides if apart else sides[:1])])
