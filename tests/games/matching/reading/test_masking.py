"""What the reading of free text stands on: names as tokens, sentences, and how much of a text is read."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.games.matching.actions import ActionError, parse_action, parse_proposal
from slim_rl.games.matching.questions import classify, pairs_asked
from slim_rl.games.matching.reading.masking import READ_UP_TO, mask, sentences, untagged, words
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Roster

ROSTER = Roster.default()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("How is Ava Li on BLEU?", "how is R0 on P0?"),
        ("Sophia's score for the GLUE paper", "R2's score for the P3 paper"),
        ("u dont have R1 on P7", "you don't have r1 on p7"),  # spelled like a token, but nobody's name
        ("any score for Sofia / QuAC?", "any score for R2 / P6?"),
        ("ava is good / what about noah", "R0 is good\nwhat about R7"),
        ("a<br/>b\r\nc", "a\nb\nc"),
        ("", ""),
    ],
)
def test_masked(text: str, masked: str) -> None:
    assert mask(text, ROSTER) == masked


def test_sentences_put_broken_lines_together() -> None:
    text = "how is R0\non P0? these pairs:\n- R1 on P1\n2. R2 on P2\nvs. 0.5"
    assert list(sentences(text)) == [
        ("how is R0 on P0", True),
        ("these pairs: R1 on P1, R2 on P2 vs. 0.5", False),
    ]
    assert words("well,  well R0's P0") == "well , well R0 P0"


def test_a_tag_is_taken_off() -> None:
    assert untagged("**[Message]** hi") == ("message", "** hi")
    assert untagged("hi [message]") == (None, "hi [message]")


@given(st.text())
def test_masked_text_has_no_other_capitals(text: str) -> None:
    """The only upper-case words are tokens, so that patterns can tell names by their capitals."""
    masked = mask(text, ROSTER).replace("\n", " ").split(" ")
    assert not any(word.isascii() and word.isalpha() and word != word.lower() for word in masked)


def test_what_stands_far_down_is_not_read() -> None:
    text = "[message] " + "hello " * (READ_UP_TO // 6) + "What is Ava on BLEU?"
    assert not read(text, ROSTER).asked and not pairs_asked(text, ROSTER)
    assert read(text[:10] + text[-20:], ROSTER).asked == ((0, 0),)
    assert pairs_asked(text[-20:], ROSTER) == [(0, 0)]


LONG = 300_000
REPEATED = ["Is he good at BLEU? ", "Ava BLEU 62 ", "Ava on BLEU and ", "so, ", "anyone else ", "- Ava\n", "(Ava ", "(Ava) (a) ", " ", "<br ", "?", "[ ", "&#9", "<br" + " " * 999]  # fmt: skip


@pytest.mark.parametrize("part", REPEATED)
def test_long_text_of_anything_is_read_at_once(part: str) -> None:
    text = (part * (LONG // len(part) + 1))[:LONG]
    start = time.process_time()
    for tagged in (text, f"[message] {text}", f"[propose] <br{text}"):
        read(tagged, ROSTER)
        classify(tagged, tagged, ROSTER)
        parse_action(tagged, ROSTER)
    assert time.process_time() - start < 3


def test_numbers_of_a_character_that_does_not_exist_are_read() -> None:
    assert isinstance(parse_proposal("&#" + "9" * 100_000, ROSTER), ActionError)
    assert isinstance(parse_proposal("&#x" + "f" * 100_000, ROSTER), ActionError)
