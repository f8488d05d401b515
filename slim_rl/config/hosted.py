"""Prices and retirement dates of hosted chat models, from public pages as of `AS_OF`, with replacements.

Nothing here is verified: the provider's own page and the bill decide, and `partner.openai.prices` overrides the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

AS_OF = "August 2025"

# US dollars per million tokens: input, cached input, output. Other models of a family (-pro, -audio, 5.1) have their own prices.
PRICES: dict[str, tuple[float, float, float]] = {
    "gpt-4.1": (2.00, 0.50, 8.00),
    "gpt-4.1-mini": (0.40, 0.10, 1.60),
    "gpt-4.1-nano": (0.10, 0.025, 0.40),
    "gpt-4o": (2.50, 1.25, 10.00),
    "gpt-4o-2024-05-13": (5.00, 5.00, 15.00),
    "gpt-4o-mini": (0.15, 0.075, 0.60),
    "gpt-5": (1.25, 0.125, 10.00),
    "gpt-5-mini": (0.25, 0.025, 2.00),
    "gpt-5-nano": (0.05, 0.005, 0.40),
    "o4-mini": (1.10, 0.275, 4.40),
}

# model -> when public pages date its shutdown (not verified)
SHUTDOWNS = {"gpt-4.1": "between October 2026 and January 2027"}


def entry_of(model: str, names: Iterable[str]) -> str | None:
    """Returns the longest name in the table that is `model`'s, with or without a snapshot's date; or None."""
    fits = [name for name in names if re.fullmatch(rf"{re.escape(name)}(-[0-9]{{4}}[0-9-]*)?", model)]
    return max(fits, key=len, default=None)
