"""Labels of what is asked with the partner's message before it, and the labels that people and models gave whole dialogues."""

from __future__ import annotations

from pathlib import Path

import pytest

from slim_rl.games.matching.questions import classify, pairs_asked
from tests.games.matching.questions.labelled import HELD_OUT, MODELS, PEOPLE, agreement, read


def test_the_message_before_gives_pronouns_their_meaning() -> None:
    assert classify("Is he good there?", "I am not sure about Ethan on SWAG.") == {"pair"}
    assert classify("Good! You?", "Hey, how's it going?") == {"process"}


def test_pairs_of_what_is_left_out() -> None:
    assert pairs_asked("Ava - what do you have for BLEU?") == [(0, 0)]
    assert pairs_asked("I still need someone for GLUE. Ava or Noah?") == [(0, 3), (7, 3)]
    assert pairs_asked("What is Noah on GLUE, besides Ava on BLEU?") == [(7, 3)]


# Rules were tried on the first two; of the third, only the figures and how many names a message has were looked at.
LEAST = [
    (PEOPLE, {"seeking": 0.85, "any": 0.94, "pair": 0.66, "open": 0.75, "check": 0.88}),
    (MODELS, {"seeking": 0.88, "any": 0.93, "pair": 0.86, "open": 0.50, "check": 0.78, "counted": 0.88, "pairs": 0.77}),
    (
        HELD_OUT,
        {"seeking": 0.82, "any": 0.88, "pair": 0.74, "open": 0.58, "check": 0.62, "counted": 0.81, "pairs": 0.62},
    ),
]


@pytest.mark.parametrize(("path", "least"), LEAST, ids=["people", "models", "models held out"])
def test_agrees_with_the_labels_of_messages(path: Path, least: dict[str, float]) -> None:
    if not path.exists():
        pytest.skip("the human dialogues are not at hand")
    found = agreement(read(path))
    assert {name: value for name, value in found.items() if name in least and value < least[name]} == {}
