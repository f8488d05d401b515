"""Labels of what is asked with the partner's message before it, and the labels that people and models gave whole dialogues."""

from __future__ import annotations

from pathlib import Path

import pytest

from slim_rl.games.matching.questions import classify, pairs_asked
from tests.games.matching.questions.labelled import HELD_OUT, MODELS, PEOPLE, agreement, read


def test_the_message_before_gives_pronouns_their_meaning() -> None:
    assert classify("Is he good there?", "I am not sure about Ethan on SWAG.") == {"pair"}
    assert classify("unknown for swag?", "Morgan is okay at Quac") == {"pair"}
    # about one cell, even where the names are too far back to tell which
    assert classify("Is it dark green or a really high score?", "He is my best, too") == {"pair"}
    assert classify("what shade of green?", "BLEU") == {"pair"}
    assert classify("Good! You?", "Hey, how's it going?") == {"process"}


# (message, the partner's before it, labels)
IN_CONTEXT = [
    # names after "besides" and its like are not asked about
    ("Besides Ava and Noah, is anyone strong for GLUE?", None, {"open"}),
    ("Anything for Daniel in addition to Electra?", None, {"open"}),
    ("Apart from putting Ava on BLEU, any ideas?", None, {"open"}),
    ("Any score on BLEU besides him?", "Noah is low on BLEU", {"open"}),
    ("Besides, what do you have for Ava on BLEU?", None, {"pair"}),
    # a dash ends a topic
    ("Ava - what do you have for BLEU?", None, {"pair"}),
    ("BLEU - is Ava any good?", None, {"pair"}),
    ("For Noah - what do you see on SWAG?", None, {"pair"}),
    ("Ava on BLEU \u2013 what do you have?", None, {"pair"}),
    ("Morgan \u2014 how strong on RoBERTa?", None, {"pair"}),
    ("BLEU - who is your best?", None, {"open"}),
    ("Quick question - how is Ava on BLEU?", None, {"pair"}),
    # "either of them" is about whole reviewers, unless a paper is said with it
    ("I have 40 for Ava on GLUE. Sofia and Andrei are unknown to me. Anything on either of them?", None, {"open"}),
    ("Is either of them good?", "Ava and Noah are what I have left.", {"open"}),
    ("Do you have a score for either of them on BLEU?", "Ava and Noah are what I have left.", {"pair"}),
    # a choice inherits what it is for
    ("Ethan or Joseph?", "I need somebody for BLEU.", {"pair"}),
    ("I still need someone for GLUE. Ava or Noah?", None, {"pair"}),
    ("BLEU or GLUE?", "Where do you want Ava?", {"pair"}),
    ("Ethan or Joseph?", None, {"open"}),
    ("Noah or Ava for BLEU?", None, {"check"}),
    # "could she do it?" asks where the asker says that it does not know, and else suggests
    ("I don't know about LLaMA. Could Ava do it?", None, {"pair"}),
    ("I have no idea on SWAG. Can Noah take it?", None, {"pair"}),
    ("Could Ava take it?", "I don't know who can do LLaMA.", {"pair"}),
    ("I think Noah is great on GLUE. Could Ava do it?", None, {"check"}),
    ("Could Ava take it?", None, {"check"}),
    # to be on one of two papers is a plan
    ("Can Ava be on BLEU or GLUE?", None, {"check"}),
    ("Can they be on SWAG or QuAC?", "I want Ava and Noah to move.", {"check"}),
    ("Can either of them be on QuAC?", "Ava and Noah are left", {"check"}),
    ("Could Ava be good on BLEU or GLUE?", None, {"pair"}),
    # after a plan it is the plan that "what about you?" asks about
    ("I'd go with Sofia on SWAG. What about you?", None, {"check"}),
    ("Let's give Ava BLEU, what about you?", None, {"check"}),
    ("I have 40 for Ava on BLEU. What about you?", None, {"pair"}),
    ("Ava is my best on BLEU and Noah on GLUE. What about you?", None, {"open"}),
    # echoes
    ("which row?", "Do you have anything in that row?", {"process"}),
    ("Which paper?", "What do you have for that paper?", {"process"}),
    ("Which paper?", "Ava has one dark green.", {"open"}),
    ("which paper do you mean?", "I have that one", {"process"}),
    ("Which row has your best scores?", None, {"open"}),
]


@pytest.mark.parametrize(("text", "previous", "labels"), IN_CONTEXT)
def test_sentence_in_its_context(text: str, previous: str | None, labels: set[str]) -> None:
    assert classify(text, previous) == labels


def test_pairs_of_what_is_left_out() -> None:
    assert pairs_asked("Ava - what do you have for BLEU?") == [(0, 0)]
    assert pairs_asked("I still need someone for GLUE. Ava or Noah?") == [(0, 3), (7, 3)]
    assert pairs_asked("I don't know about LLaMA. Could Ava do it?") == [(0, 4)]
    assert pairs_asked("What is Noah on GLUE, besides Ava on BLEU?") == [(7, 3)]


# Rules were tried on the first two; of the third, only the figures and how many names a message has were looked at.
LEAST = [
    (PEOPLE, {"seeking": 0.85, "any": 0.94, "pair": 0.80, "open": 0.77, "check": 0.90}),
    (MODELS, {"seeking": 0.90, "any": 0.94, "pair": 0.90, "open": 0.64, "check": 0.81, "counted": 0.90, "pairs": 0.79}),
    (
        HELD_OUT,
        {"seeking": 0.82, "any": 0.88, "pair": 0.79, "open": 0.58, "check": 0.65, "counted": 0.81, "pairs": 0.62},
    ),
]


@pytest.mark.parametrize(("path", "least"), LEAST, ids=["people", "models", "models held out"])
def test_agrees_with_the_labels_of_messages(path: Path, least: dict[str, float]) -> None:
    if not path.exists():
        pytest.skip("the human dialogues are not at hand")
    found = agreement(read(path))
    assert {name: value for name, value in found.items() if name in least and value < least[name]} == {}
