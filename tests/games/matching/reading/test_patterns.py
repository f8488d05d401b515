"""Tables of patterns mean what they say."""

from __future__ import annotations

from slim_rl.games.matching.reading.patterns import Vocabulary, pattern

FRUIT = Vocabulary(
    r"""
<fruit> apples?
        pears?
asks    any (?:<fruit>
        nuts)\b

asks    what about <fruit>
"""
)


def test_an_end_of_line_is_an_or() -> None:
    assert pattern("a|b\n    c(?:d\n    e)f").pattern == "a|b|c(?:d|e)f"


def test_words_stand_for_themselves_in_all_rows_below_and_in_patterns() -> None:
    assert FRUIT.rows == [
        ("<fruit>", "apples?|pears?"),
        ("asks", r"any (?:apples?|pears?|nuts)\b"),
        ("asks", "what about apples?|pears?"),
    ]
    assert FRUIT.pattern("no (?:<fruit>)").fullmatch("no pear")
