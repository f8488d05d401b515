"""Sentences, one a line of `sentences.jsonl`, and what the reader must make of each.

A line has its `text`, the messages `before` it, and what it is to be: the pairs `asked` and those of them that the guide counts (`pairs`), as
"first name/short title", the `labels`, whether it is `general`, `suggests` or is `malformed`,
the `names` in it, and the values that it `states`.
"""

from __future__ import annotations

import json
import string
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.games.matching.actions import ActionError, parse_action, parse_proposal
from slim_rl.games.matching.questions import classify, pairs_asked
from slim_rl.games.matching.reading.masking import READ_UP_TO, mask, sentences, untagged, words
from slim_rl.games.matching.reading.reader import Reading, read
from slim_rl.games.matching.roster import Pair, Roster
from slim_rl.games.matching.study.demonstrations import ASK_OPEN, ASK_PAIR, TELL

ROSTER = Roster.default()
ROWS = [json.loads(line) for line in Path(__file__).with_name("sentences.jsonl").open(encoding="utf-8")]


def named(pair: Pair) -> str:
    return f"{ROSTER.first_names[pair[0]]}/{ROSTER.short_papers[pair[1]]}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["text"])
def test_sentence_is_read_as_its_line_says(row: dict[str, Any]) -> None:
    found = read(row["text"], ROSTER, row.get("before", []))
    made = {
        "asked": [named(pair) for pair in found.asked],
        "pairs": [named(pair) for pair in found.asked if pair not in found.suggested],
        "labels": sorted(found.labels),
        "general": found.general,
        "suggests": found.suggests,
        "malformed": found.malformed,
        "names": [ROSTER.name(mention.kind, mention.index) for mention in ROSTER.find(row["text"])],
        "states": {named(pair): value for pair, value in found.statements},
    }
    expected = {name: row[name] for name in made if name in row}
    assert {name: made[name] for name in expected} == expected


@pytest.mark.parametrize(
    "question",
    [
        "How is {r} on {p}?",
        "What about {r} for {p}",
        "Do you have {p} for {r}?",
        "Tell me {r}'s {p} score.",
        "{r}/{p}?",
    ],
)
def test_every_pair_by_every_name(question: str) -> None:
    for r, reviewer in enumerate(ROSTER.reviewers):
        for p, paper in enumerate(ROSTER.papers):
            for name in (reviewer, *reviewer.split()):
                for title in (paper, ROSTER.short_papers[p], ROSTER.short_papers[p].lower()):
                    assert read(question.format(r=name, p=title), ROSTER).asked == ((r, p),)


def test_names_are_the_rosters_own() -> None:
    roster = Roster(("Zoë Ångström", "R2 D2"), ("Paper 7: on numbers", "P0"))
    assert read("How is Zoë on Paper 7?", roster).asked == ((0, 0),)
    assert read("R2 D2 on P0?", roster).asked == ((1, 1),)
    assert read("R2 D2 on Paper 7: 33.", roster).statements == (((1, 0), 33),)
    assert read("How is Ava on BLEU?", roster).asked == ()


vocabulary = st.sampled_from(
    """
    Ava Li Noah BLEU GLUE QuAC on for and or how is what about do you have I 62 7 ? . , : ; - ( ) / let's put [message]
    [reject] please tell me not besides than respectively who which any score <br> ’ R0 P0 1. 0.5
    """.split()  # noqa: SIM905
)


@given(
    st.one_of(
        st.text(max_size=300), st.text(string.printable, max_size=300), st.lists(vocabulary, max_size=40).map(" ".join)
    )
)
def test_no_text_raises_and_pairs_are_named(text: str) -> None:
    heard = read(text, ROSTER)
    mentions = ROSTER.find(text)
    reviewers = {mention.index for mention in mentions if mention.kind == "reviewer"}
    papers = {mention.index for mention in mentions if mention.kind == "paper"}
    for reviewer, paper in (*heard.asked, *(pair for pair, _ in heard.statements)):
        assert reviewer in reviewers
        assert paper in papers
    assert len(set(heard.asked)) == len(heard.asked)


def test_human_messages_are_heard(dialop_human) -> None:  # type: ignore[no-untyped-def]
    import json

    asked = messages = 0
    for line in (dialop_human / "optimization.jsonl").read_text(encoding="utf-8").splitlines():
        for action in json.loads(line)["action_log"]:
            if action["type"] == "message":
                messages += 1
                asked += bool(read(action["message"]["data"], ROSTER).asked)
    assert messages > 1000
    assert 0.03 * messages < asked < 0.15 * messages  # people mostly state and suggest


@pytest.mark.parametrize("text", ["\uff9e", "ﾊ\uff9e \uff9f 62", "[message] \uff9e?"])
def test_a_word_of_marks_alone_is_a_word(text: str) -> None:
    heard = read(text, ROSTER)
    assert not heard.asked and not heard.statements


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
    assert list(sentences(text)) == [("how is R0 on P0", True), ("these pairs: R1 on P1, R2 on P2 vs. 0.5", False)]
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


ASKING = ("direct", "multi", "follow", "within")
# The shares of questions whose pairs are read exactly and of those that are not counted, of others that get a score, of open ones counted
BOUNDS = {"dev": (0.97, 0.01, 0.02, 0.93), "test": (0.90, 0.065, 0.05, 0.95)}


def wordings(name: str, *kinds: str) -> list[tuple[Reading, set[tuple[int, int]]]]:
    rows = map(json.loads, Path(__file__).with_name(f"wordings_{name}.jsonl").open(encoding="utf-8"))
    return [
        (
            read(row["text"], ROSTER, row["before"]),
            {(ROSTER.reviewers.index(reviewer), ROSTER.short_papers.index(paper)) for reviewer, paper in row["pairs"]},
        )
        for row in rows
        if row["kind"] in kinds
    ]


@pytest.mark.parametrize("name", BOUNDS)
def test_read_held_out_wordings_reaches_its_floors(name: str) -> None:
    right, missed, answered, counted = BOUNDS[name]
    asking, others, general = wordings(name, *ASKING), wordings(name, "non"), wordings(name, "open")
    assert len(asking) >= 148 and len(others) >= 88 and len(general) >= 15
    assert sum(set(found.asked) == pairs for found, pairs in asking) >= right * len(asking)
    assert sum(not found.seeking for found, _ in asking) <= missed * len(asking)
    assert sum(bool(found.asked) for found, _ in others) <= answered * len(others)
    assert not any(found.asked for found, _ in general)
    assert sum(found.seeking for found, _ in general) >= counted * len(general)
