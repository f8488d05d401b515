"""Alt texts of figures, generated from the figures' numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from slim_rl.formats import plain, sentence, words


def curves_alt(*names: str) -> Callable[..., str]:
    """Returns a function that describes the first and last value of these measures in each arm."""

    def describe(results: Mapping[str, Any]) -> str:
        parts = []
        for name in names:
            ends = [
                f"{words(arm)} from {plain(known[0], share)} to {plain(known[-1], share)}"
                for arm, curves in results["curves"].items()
                if (curve := curves.get("measures", {}).get(name))
                and (known := [v for v in curve["mean"] if np.isfinite(v)])
                for share in [results["measures"][name]["share"]]
            ]
            parts += [f"{results['measures'][name]['title']}: {', '.join(ends)}"] if ends else []
        return f"Line chart over training. {sentence('; '.join(parts))}."

    return describe


def shares_alt(key: str) -> Callable[..., str]:
    """Returns a function that lists the layers of a stacked figure."""

    def describe(results: Mapping[str, Any]) -> str:
        names = dict.fromkeys(name for part in results[key].values() for name in part.get("shares", {}))
        return f"Stacked shares over training, one panel per arm: {', '.join(map(words, names))}."

    return describe


def other_measures_alt(results: Mapping[str, Any]) -> str:
    """Returns a list of the measures that are drawn as small multiples."""
    others = [about["title"] for name, about in results["measures"].items() if name not in ("questions", "reward")]
    return f"Small line charts over training, one per measure: {', '.join(others)}."
