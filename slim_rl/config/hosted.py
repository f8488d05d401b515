"""Prices and retirement dates of hosted chat models, from public pages as of `AS_OF`, with replacements.

Nothing here is verified: the provider's own page and the bill decide, and `partner.openai.prices` overrides the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

AS_OF = "November 2026"


def _row(fresh: float, cached: float, output: float, written: float | None = None) -> dict[str, float | None]:
    """Returns US dollars per million tokens: of input, of input in the provider's cache and written to it, of output."""
    return {"input": fresh, "cached": cached, "output": output, "written": written}


# Other models of a family (-pro, -audio, -codex) have their own prices. From GPT-5.6 on a cache write costs 1.25 times the input.
PRICES = {
    "gpt-4.1": _row(2.00, 0.50, 8.00),
    "gpt-4.1-mini": _row(0.40, 0.10, 1.60),
    "gpt-4.1-nano": _row(0.10, 0.025, 0.40),
    "gpt-4o": _row(2.50, 1.25, 10.00),
    "gpt-4o-2024-05-13": _row(5.00, 5.00, 15.00),
    "gpt-4o-mini": _row(0.15, 0.075, 0.60),
    "gpt-5": _row(1.25, 0.125, 10.00),
    "gpt-5-mini": _row(0.25, 0.025, 2.00),
    "gpt-5-nano": _row(0.05, 0.005, 0.40),
    "gpt-5.4-mini": _row(0.75, 0.075, 4.50),
    "gpt-5.4-nano": _row(0.20, 0.02, 1.25),
    "gpt-5.6-luna": _row(0.20, 0.02, 1.20, 0.25),
    "gpt-6-luna": _row(0.10, 0.01, 0.50, 0.125),
    "gpt-6.1-terra": _row(1.00, 0.05, 5.00, 1.25),
    "o4-mini": _row(1.10, 0.275, 4.40),
}

# model -> when public pages date its shutdown (not verified); an endpoint that says so itself decides (`Endpoint.shutdown_date`)
SHUTDOWNS = {"gpt-4.1": "14 January 2027"}


def entry_of(model: str, names: Iterable[str]) -> str | None:
    """Returns the longest name in the table that is `model`'s, with or without a snapshot's date; or None."""
    fits = [name for name in names if re.fullmatch(rf"{re.escape(name)}(-[0-9]{{4}}[0-9-]*)?", model)]
    return max(fits, key=len, default=None)
