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


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("[message] What is Ava Li on BLEU?", [(AVA, BLEU)]),
        ("what is your score of noah for swag", [(NOAH, SWAG)]),
        ("How are Ava on BLEU and GLUE, and Noah on SWAG?", [(AVA, BLEU), (AVA, GLUE), (NOAH, SWAG)]),
        ("What do you have for Ava or Noah on BLEU?", [(AVA, BLEU), (NOAH, BLEU)]),
        ("Do you see Ava on BLEU, or Noah?", [(AVA, BLEU), (NOAH, BLEU)]),
        ("What are Ava and Noah on BLEU and SWAG, respectively?", [(AVA, BLEU), (NOAH, SWAG)]),
        ("What do you have on BLEU for Ava and on GLUE for Sofia?", [(AVA, BLEU), (SOFIA, GLUE)]),
        ("For Ava Li, what do you see on BLEU and GLUE?", [(AVA, BLEU), (AVA, GLUE)]),
        ("Can you give me the numbers for Ava/BLEU and Ava/GLUE?", [(AVA, BLEU), (AVA, GLUE)]),
        ("any score for Sofia / QuAC?", [(SOFIA, QUAC)]),
        ("between BLEU and RoBERTa, which is better for Ethan?", [(ETHAN, BLEU), (ETHAN, ROBERTA)]),
        ("I have 40 for Ava on GLUE. What do you have for Ava on BLEU?", [(AVA, BLEU)]),
        ("I have 40 for Ava on GLUE. What about you?", [(AVA, GLUE)]),
        ("With Ava on BLEU and Noah on SWAG, what do you have for Sofia on GLUE?", [(SOFIA, GLUE)]),
        ("With Ava on BLEU and Noah on SWAG, what do you have for GLUE?", []),
        ("Any pairs that beat Ava on BLEU?", []),
        ("What is Ava on BLEU? And what is Ava on BLEU again?", [(AVA, BLEU)]),
        ("Is Ava stronger than Noah on BLEU?", [(AVA, BLEU), (NOAH, BLEU)]),
        ("How does Ava do on GLUE vs. SWAG?", [(AVA, GLUE), (AVA, SWAG)]),
        ("How is Ava on BLEU? And on GLUE?", [(AVA, BLEU), (AVA, GLUE)]),
        ("How is Ava on BLEU? What about Noah?", [(AVA, BLEU), (NOAH, BLEU)]),
        ("What do you have for these pairs?\n1. Ava Li on BLEU\n2. Noah on SWAG", [(AVA, BLEU), (NOAH, SWAG)]),
        ("Could you tell me your score for Ava on:\n- BLEU\n- GLUE", [(AVA, BLEU), (AVA, GLUE)]),
        ("How is Ava on BLEU, I have 62 for Noah on SWAG", [(AVA, BLEU)]),
        ("I see Ava Li on BLEU: 62. What do you see for this pair?", [(AVA, BLEU)]),
        ("Ava on BLEU, please.", [(AVA, BLEU)]),
        ("your score for Ava on BLEU", [(AVA, BLEU)]),
        ("score for Ava on BLEU", [(AVA, BLEU)]),
        ("affinity between Ava and BLEU", [(AVA, BLEU)]),
        ("score for Ava on BLEU: 62", []),
        ("What do you have for Daniel?", []),
        ("Does anyone look better for BLEU than Ava?", []),
        ("Ava on BLEU? Noah on SWAG?", []),  # suggestions, by the annotation guide
        ("do you have any good options for swag besides Sofia?", []),
        ("How about Ava for BLEU?", []),
        ("Ava is great on BLEU.", []),
        ("", []),
    ],
)
def test_pairs_asked(text: str, pairs: list[tuple[int, int]]) -> None:
    assert pairs_asked(text, ROSTER) == pairs


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
