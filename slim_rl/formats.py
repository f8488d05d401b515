"""Text forms of numbers, names and addresses, for pages and the terminal."""

import math
import re
from collections.abc import Sequence
from typing import Any, TypeGuard

DASH = "–"
NOT_MEASURED = "not measured"


_USERINFO = re.compile(r"(?<=://)[^/\s?#'\"]+(?=@)")


def without_passwords(text: str) -> str:
    """Returns `text` with *** in place of the `user:password` of each URL."""
    return _USERINFO.sub("***", text)


def known(value: float | None) -> TypeGuard[float]:
    """Returns True for a finite number."""
    return value is not None and math.isfinite(value)


def plain(value: float | None, share: bool = False, signed: bool = False) -> str:
    """Returns '0.123', '1.23', '12.3'; '12.3%' for a share, '+1.2 points' for its change (`signed`)."""
    if not known(value):
        return DASH
    digits = 1 if share or abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    number = round(100 * value if share else value, digits) + 0.0  # no minus before a zero
    text = f"{number:{'+' if signed else ''},.{digits}f}"
    return text.replace("-", "−") + ((" points" if signed else "%") if share else "")


def interval(low: float | None, high: float | None, share: bool = False, signed: bool = False) -> str:
    """Returns '0.123 to 0.456'. `signed`: whether it is a change, whose unit stands next to its value."""
    if not known(low) or not known(high):
        return DASH
    return " to ".join(plain(end, share).removesuffix("%" if signed else "") for end in (low, high))


def p_value(value: float | None) -> str:
    """Returns a p value with three digits, or '< 0.001'."""
    if not known(value):
        return DASH
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def words(name: Any) -> str:
    """Returns a name as words: 'shy arm' for shy_arm."""
    return str(name).replace("_", " ")


def count(number: int, noun: str) -> str:
    """Returns '1 game', '1,200 games'."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def sentence(text: str) -> str:
    """Returns the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def listed(names: Sequence[str]) -> str:
    """Returns names as in a sentence: 'a, b and c'."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
