"""What a figure shows, in words and from the same numbers, for who cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from slim_rl.formats import plain, sentence, words


def in_words(*names: str) -> Callable[..., str]:
    """Says of these measures from what to what each arm goes."""

    def say(results: Mapping[str, Any]) -> str:
        parts = []
        for name in names:
            ends = [
                f"{words(arm)} from {plain(known[0], share)} to {plain(known[-1], share)}"
                for arm, curves in results["curves"].items()
                if (found := curves.get("measures", {}).get(name))
                and (known := [v for v in found["mean"] if np.isfinite(v)])
                for share in [results["measures"][name]["share"]]
            ]
            parts += [f"{results['measures'][name]['title']}: {', '.join(ends)}"] if ends else []
        return f"Line chart over training. {sentence('; '.join(parts))}."

    return say


def shares_in_words(key: str) -> Callable[..., str]:
    """Says what the shares of a stacked figure are of."""

    def say(results: Mapping[str, Any]) -> str:
        names = dict.fromkeys(name for part in results[key].values() for name in part.get("shares", {}))
        return f"Stacked shares over training, a panel an arm: {', '.join(map(words, names))}."

    return say


def others_in_words(results: Mapping[str, Any]) -> str:
    others = [about["title"] for name, about in results["measures"].items() if name not in ("questions", "reward")]
    return f"Small line charts over training, a measure each: {', '.join(others)}."
