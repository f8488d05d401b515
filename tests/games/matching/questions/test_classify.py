"""Question labels: a table of sentences, and what holds for any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.games.matching.questions import KINDS, classify, pairs_asked
from slim_rl.games.matching.roster import Roster
from tests.games.matching.reading.test_sentences import ROWS


def test_names_of_another_roster() -> None:
    roster = Roster(("Harper Stone", "Lucas Grey"), ("Zebra: Stripes for Parsing", "Yak"))
    assert classify("What is Harper Stone on Zebra?", roster=roster) == {"pair"}
    assert classify("what do you have for lucas", roster=roster) == {"open"}
    assert classify("lucas for yak?", roster=roster) == {"check"}


def test_names_that_share_their_words() -> None:
    roster = Roster(("Reviewer 1", "Reviewer 2"), ("Paper A", "Paper B"))
    assert classify("What is Reviewer 2 on Paper A?", roster=roster) == {"pair"}
    assert pairs_asked("What is Reviewer 2 on Paper A?", roster) == [(1, 0)]
    assert classify("What do you have for reviewer 1?", roster=roster) == {"open"}
    assert classify("What is R1 on P7?") != {"pair"}  # spelled like our own tokens, but nobody's name


words = st.lists(
    st.sampled_from(
        [
            "what", "who", "is", "are", "do", "you", "have", "Ava", "BLEU", "on", "for", "?", ",", "/", ".",
            "[message]", "and", "there", "he", "with", "better", "than", "besides", "Noah", "Li", "score", "how",
            "about", "i", "know", "tell", "me", "your", "R1", "P3", "R9", "P_", "~", "'s",
        ]
    ),
    max_size=14,
).map(" ".join)  # fmt: skip


@given(st.text() | words, st.none() | st.text(max_size=30) | words)
def test_any_text_gets_labels(text: str, previous: str | None) -> None:
    labels = classify(text, previous)
    assert labels <= set(KINDS)
    assert classify(text, previous) == labels


@pytest.mark.parametrize("text", [row["text"] for row in ROWS if "labels" in row and not row.get("before")])
def test_case_space_and_tag_do_not_matter(text: str) -> None:
    labels, bare = classify(text), text.removeprefix("[message]")
    for form in (
        bare.lower(),
        bare.upper(),
        f"  {bare.replace(' ', '   ')} ",
        f"[message] {bare}",
        f"[ Message ]\n{bare}",
    ):
        if not text.startswith(("[propose]", "[accept]")):
            assert classify(form) == labels, form
