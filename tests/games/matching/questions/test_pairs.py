"""Which pairs a message asks about, and which of them a reply answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.games.matching.questions import pairs_asked
from slim_rl.games.matching.questions.answers import answers, refused, stated_pairs
from slim_rl.games.matching.roster import Roster

ROSTER = Roster.default(8)
AVA, DANIEL, SOFIA, ANDREI, MORGAN, JOSEPH, ETHAN, NOAH = range(8)
BLEU, ELECTRA, GLOVE, GLUE, LLAMA, ROBERTA, QUAC, SWAG = range(8)


def test_pronouns_take_up_what_was_named_last() -> None:
    assert pairs_asked("Is he good at SWAG?", ROSTER, "I like Ava for GLUE and Ethan for QuAC") == [(ETHAN, SWAG)]
    assert pairs_asked("Morgan is blank on SWAG for me, what do you have there?", ROSTER) == [(MORGAN, SWAG)]


def test_only_pairs_of_the_roster() -> None:
    small = Roster.default(3)
    assert pairs_asked("What is Noah on SWAG?", small) == []
    assert pairs_asked("What is Sofia on GloVe?", small) == [(2, 2)]


ONE = [(AVA, BLEU)]
TWO = [(AVA, BLEU), (NOAH, SWAG)]


@pytest.mark.parametrize(
    ("asked", "reply", "expected"),
    [
        (ONE, "[message] Ava Li on BLEU: 62.", {(AVA, BLEU): "value"}),
        (ONE, "I have 62.", {(AVA, BLEU): "value"}),
        (ONE, "87", {(AVA, BLEU): "value"}),
        (ONE, "My score for Ava on BLEU is 512, and Noah on SWAG 80", {(AVA, BLEU): "value"}),
        (ONE, "I can't see that one.", {(AVA, BLEU): "none"}),
        (ONE, "[message] I have no score for Ava Li on BLEU.", {(AVA, BLEU): "none"}),
        (ONE, "She is blank for me.", {(AVA, BLEU): "none"}),
        (ONE, "Not in my table.", {(AVA, BLEU): "none"}),
        (ONE, "It's not in my list, sorry.", {(AVA, BLEU): "none"}),
        (ONE, "I don't have that score; but Ava on GLUE is 40.", {(AVA, BLEU): "none"}),
        (TWO, "Ava on BLEU is 62. I have no score for Noah on SWAG.", {(AVA, BLEU): "value", (NOAH, SWAG): "none"}),
        (TWO, "62 and 40", {(AVA, BLEU): "value", (NOAH, SWAG): "value"}),
        (TWO, "62", {}),
        (ONE, "She is quite good.", {}),
        (ONE, "Some are good, some are not. Ask me about one pair.", {}),
        (ONE, "I have no score for Noah on SWAG.", {}),
        (ONE, "Noah is 62.", {}),
        (ONE, "", {}),
    ],
)
def test_answers(asked: list[tuple[int, int]], reply: str, expected: dict[tuple[int, int], str]) -> None:
    assert answers(asked, reply, ROSTER) == expected


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        ("I would rather not say.", TWO),
        ("I keep my scores to myself.", TWO),
        ("I cannot tell you that.", TWO),
        ("I won't share Ava on BLEU.", ONE),
        ("Ask me about one reviewer and one paper.", []),
        ("I have no score for Ava Li on BLEU.", []),
        ("", []),
    ],
)
def test_a_refusal_is_neither_a_value_nor_that_there_is_none(reply: str, kept: list[tuple[int, int]]) -> None:
    assert refused(TWO, reply, ROSTER) == kept


def test_told_holds_what_was_not_asked_for() -> None:
    assert stated_pairs([], "Ava on BLEU is 62 and Noah on SWAG is 40.", ROSTER) == TWO
    assert stated_pairs(ONE, "I don't have that score; but Ava on GLUE is 40.", ROSTER) == [(AVA, GLUE)]


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    for r, p in pairs_asked(text, ROSTER, text) + stated_pairs(TWO, text, ROSTER):
        assert 0 <= r < 8
        assert 0 <= p < 8
    assert set(answers(TWO, text, ROSTER)) <= set(TWO)
