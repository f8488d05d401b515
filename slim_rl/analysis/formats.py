"""How numbers are written, on the page and in the terminal. A number without an interval has none made up for it."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

DASH = "–"


def known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def plain(value: float | None, share: bool = False, signed: bool = False) -> str:
    """'0.123', '1.23', '12.3', or per cent for a share."""
    if not known(value):
        return DASH
    digits = 1 if share or abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    number = round(100 * value if share else value, digits) + 0.0  # no minus before a zero
    text = f"{number:{'+' if signed else ''},.{digits}f}"
    return text.replace("-", "−") + ("%" if share else "")


def interval(low: float | None, high: float | None, share: bool = False) -> str:
    return f"{plain(low, share)} to {plain(high, share)}" if known(low) and known(high) else DASH


def p_value(value: float | None) -> str:
    if not known(value):
        return DASH
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def words(name: Any) -> str:
    """A name as words: shy_arm is 'shy arm'."""
    return str(name).replace("_", " ")


def count(number: int, noun: str) -> str:
    """'1 game', '1,200 games'."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
