"""The order in which arms are shown."""

from __future__ import annotations

from collections.abc import Iterable

TREATMENT = "shy"  # the arm the others are compared with, where there is one


def order_arms(arms: Iterable[str]) -> list[str]:
    """The treatment first, then by name."""
    return sorted(map(str, arms), key=lambda arm: (arm != TREATMENT, arm))
