"""Free wordings of questions and answers."""

from __future__ import annotations

import itertools

import pytest

from examples.guess_who.partners import NO, NOTED, SILENT, VAGUE, YES
from examples.guess_who.reading import answer_of, asks, mentioned, read
from examples.guess_who.traits import CHARACTERS, TRAITS, phrase


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("Does it wear glasses?", ("trait", "glasses")),
        ("[message] is the person wearing a cap", ("trait", "hat")),
        ("Spectacles?", ("trait", "glasses")),
        ("**[message]** Does it wear _glasses_?", ("trait", "glasses")),
        ("A hat\uff1f", ("trait", "hat")),
        ("Is the hair of your character red?", ("trait", "red hair")),
        ("Is it red-haired?", ("trait", "red hair")),
        ("Are they a redhead?", ("trait", "red hair")),
        ("Are the eyes blue?", ("trait", "blue eyes")),
        ("Tell me whether there is a mustache.", ("trait", "moustache")),
        ("Has it got a beard or not?", ("trait", "beard")),
        ("I wonder if it is curly", ("trait", "curly hair")),
        ("Is it mara?", ("character", "Mara")),
        ("Does it have a hat (yes/no)?", ("trait", "hat")),
        ("I'm not sure yet. Does the character have a hat?", ("trait", "hat")),
        ("Is the character blond?", ("trait", "blond hair")),
        ("Has it got a blond beard?", ("trait", "beard")),
        ("Is it a red-head?", ("trait", "red hair")),
        ("I want to know whether the character has glasses.", ("trait", "glasses")),
        ("My question is whether it wears a scarf.", ("trait", "scarf")),
    ],
)
def test_a_plain_question_names_one_thing_in_whatever_words(text: str, about: tuple[str, str]) -> None:
    assert read(text).question == about and asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "Who is it?", "What colour is its hair?", "Does it have glasses or a hat?", "Is it Mara or Kira?",
        "Is it Mara with the hat?", "Is it without glasses?", "Doesn't it wear a hat?",
        "Doesn\u2019t it wear a hat?", "Does its name begin with M?", "Tell me everything.",
        "It has no hat. Is it a hat?", "So far: not glasses. Does it have a hat?",
    ],
)  # fmt: skip
def test_any_other_question_is_open(text: str) -> None:
    assert asks(text) and read(text).question is None


@pytest.mark.parametrize("text", ["", "I like hats.", "Good!", "[guess] Mara", "\x00<|im_end|>"])
def test_what_asks_nothing(text: str) -> None:
    assert not asks(text) and read(text).question is None


def test_every_trait_and_character_is_read_by_its_own_name() -> None:
    assert all(read(f"Does it have {phrase(trait)}?").question == ("trait", trait) for trait in TRAITS)
    assert all(read(f"Is it {name}?").question == ("character", name) for name in CHARACTERS)


@pytest.mark.parametrize(
    "text",
    [
        *YES, "[message] Yep, glasses.", "It does.", "that's true", "Well, I must say yes.", "_Yes_",
        "No doubt about it: yes", "No problem! Yes.",
    ],
)  # fmt: skip
def test_a_yes(text: str) -> None:
    assert answer_of(text) is True


@pytest.mark.parametrize(
    "text", [*NO, "nope", "It does not.", "It isn't.", "That is not so.", "it has no hat", "Indeed not."]
)
def test_a_no(text: str) -> None:
    assert answer_of(text) is False


LEFT_OPEN = [
    "", "No idea.", "Perhaps yes, perhaps no.", "Right, I don\u2019t know.", "Not sure, maybe yes", "Not exactly",
    "Yes, but not really", "I would not say yes.", "I wouldn't say no.", "So you say.", "Correct me if I'm wrong",
    "True or false? I can't tell.", "It is hard to say.", "It is hard to tell.", "It is not clear.",
    "It is a secret.", "Yes and no.",
]  # fmt: skip


@pytest.mark.parametrize("text", [*VAGUE, *SILENT, *NOTED, *LEFT_OPEN])
def test_neither(text: str) -> None:
    assert answer_of(text) is None


def test_what_partners_say_by_themselves_names_nothing() -> None:
    assert not any(mentioned(text) for text in (*YES, *NO, *VAGUE, *SILENT, *NOTED))


def test_any_two_characters_differ_in_three_traits_or_more() -> None:
    assert len(CHARACTERS) == 24
    assert all({*traits} <= {*TRAITS} for traits in CHARACTERS.values())
    pairs = itertools.combinations(CHARACTERS.values(), 2)
    assert min(len({*one} ^ {*other}) for one, other in pairs) >= 3
