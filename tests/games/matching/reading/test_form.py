"""Malformed messages: what nobody writes by choice, and nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.study.demonstrations import ASK_OPEN, ASK_PAIR, TELL

ROSTER = Roster.default()


@pytest.mark.parametrize(
    "text",
    [
        "[message] What is Ava Li for for BLEU?", "What is what is Ava on BLEU?", "How good is is Ava on BLEU?",
        "What do you have do you have for Ava on BLEU?", "Any score for on BLEU for Ava?",
        "What is Ava on for the BLEU?", "What is Ava Li on Ava Li?", "Ava Ava on BLEU?",
        "Ava BLEU Noah SWAG Sofia QuAC?", "What is Ava on BLEU? <|im_end|>", "Who do you have for BLEU: BLEU: BLEU",
        "What is Ava Li on BLEU: BLEU?", "How good is Ava Li\n\n\n\n\nGloVe",
    ],
)  # fmt: skip
def test_malformed(text: str) -> None:
    assert read(text, ROSTER).malformed


@pytest.mark.parametrize(
    "text",
    [
        "Ava on BLEU?", "Ava/BLEU?", "ava bleu?", "no no, wait wait", "It is very very good.",
        "I know that that is high.", "really, really good", "ehtan smith on Quac?",
        "What do you suggest we come up with for Joseph?", "What is Ava on BLEU? What is Ava on GLUE?",
        "Ava: BLEU 62, GLUE 10; Noah: BLEU 3", "[propose]\nBLEU: Ava\nAva: BLEU",
        "Ava on BLEU: 62. BLEU: any other?", "I see\n\nAva: BLEU?", "It is 50:50 for me", "", "?",
    ],
)  # fmt: skip
def test_well_formed(text: str) -> None:
    assert not read(text, ROSTER).malformed


def test_the_scripted_askers_sentences_are_well_formed() -> None:
    for sentence in (*ASK_PAIR, *ASK_OPEN, TELL):
        for reviewer in ROSTER.reviewers:
            for paper in (*ROSTER.papers, *ROSTER.short_papers):
                assert not read(sentence.format(reviewer=reviewer, paper=paper, value=62), ROSTER).malformed


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    assert read(text, ROSTER).malformed in (True, False)


def test_people_hardly_ever_write_malformed_messages(dialop_human) -> None:  # type: ignore[no-untyped-def]
    messages = [
        action["message"]["data"]
        for line in (dialop_human / "optimization.jsonl").read_text(encoding="utf-8").splitlines()
        for action in json.loads(line)["action_log"]
        if action["type"] == "message"
    ]
    assert sum(read(message, ROSTER).malformed for message in messages) < 0.005 * len(messages)
