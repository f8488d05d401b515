from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Roster

ROSTER = Roster.default()


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


words = st.sampled_from(
    """
    Ava Li Noah BLEU GLUE QuAC on for and or how is what about do you have I 62 7 ? . , : ; - ( ) / let's put [message]
    [reject] please tell me not besides than respectively who which any score <br> ’ R0 P0 1. 0.5
    """.split()  # noqa: SIM905
)


@given(
    st.one_of(
        st.text(max_size=300), st.text(string.printable, max_size=300), st.lists(words, max_size=40).map(" ".join)
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
