"""Sentences, one a line of `sentences.jsonl`, and what the reader must make of each; of other rosters in `rosters.jsonl`.

A line has its `text`, the messages `before` it, and what it is to be: the pairs `asked` and those of them that the guide counts (`pairs`), as
"first name/short title", the `labels`, whether it is `general`, `suggests` or is `malformed`,
the `names` in it, the values that it `states`, and what it is `masked`.
"""

import json
import string
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.errors import ConfigError
from slim_rl.games.matching.actions import Action, ActionError, parse_action, parse_proposal
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from slim_rl.games.matching.questions.answers import answers, stated_pairs
from slim_rl.games.matching.reading.acts import KINDS
from slim_rl.games.matching.reading.masking import READ_UP_TO, mask, sentences, untagged, words
from slim_rl.games.matching.reading.reader import Reading, classify, pairs_asked, read
from slim_rl.games.matching.roster import Pair, Roster
from slim_rl.games.matching.study.demonstrations import ASK_OPEN, ASK_PAIR, TELL
from tests.games.matching.questions.labelled import HELD_OUT, MODELS, PEOPLE, agreement
from tests.games.matching.questions.labelled import read as read_labelled

ROSTER = Roster.default()
HERE = Path(__file__).parent
ROWS, OTHERS = (
    [json.loads(line) for line in (HERE / f"{name}.jsonl").open(encoding="utf-8")] for name in ("sentences", "rosters")
)


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
        "masked": mask(row["text"], ROSTER),
    }
    expected = {name: row[name] for name in made if name in row}
    assert {name: made[name] for name in expected} == expected
    if "labels" in row and not row.get("before") and not row["text"].startswith(("[propose]", "[accept]")):
        bare = row["text"].removeprefix("[message]")  # case, space and tag do not matter
        spaced = f"  {bare.replace(' ', '   ')} "
        for form in (bare.lower(), bare.upper(), spaced, f"[message] {bare}", f"[ Message ]\n{bare}"):
            assert sorted(classify(form)) == row["labels"], form


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: f"{row['reviewers']} {row['papers']} {row.get('text')}")
def test_names_of_another_roster_are_read(row: dict[str, Any]) -> None:
    """A line has the roster's names, and a sentence as above, the `plan` or `error` of an action, or with what the roster is `refused`."""
    reviewers, papers, text = tuple(row["reviewers"]), tuple(row["papers"]), row.get("text", "")
    if "refused" in row:
        with pytest.raises(ConfigError, match=row["refused"]):
            Roster(reviewers, papers)
        return
    roster = Roster(reviewers, papers)
    found, action = read(text, roster), parse_action(text, roster)
    made: dict[str, Any] = {
        "asked": [list(pair) for pair in found.asked],
        "labels": sorted(found.labels),
        "malformed": found.malformed,
        "names": [roster.name(mention.kind, mention.index) for mention in roster.find(text)],
        "states": [[list(pair), value] for pair, value in found.statements],
        "plan": list(action.assignment or ()) if isinstance(action, Action) else None,
    }
    expected = {name: row[name] for name in made if name in row}
    assert {name: made[name] for name in expected} == expected
    if "error" in row:
        assert isinstance(action, ActionError) and row["error"] in action.message


def test_roster_has_short_names_and_spans_of_words() -> None:
    assert Roster.default(3).reviewers == ("Ava Li", "Daniel Nguyen", "Sofia Patel") and Roster.default(9) == Roster()
    roster = Roster(("Ava Li", "Ava B"), ("BLEU: a: b", "No colon here"))
    assert (roster.short_papers, roster.first_names) == (("BLEU", "No colon here"), ("Ava", "Ava"))
    assert [len(hit.meanings) for hit in roster.hits("Ava")] == [2]
    found = ROSTER.find("Sophia on Bleau and Ava on GLUE", False)
    assert [ROSTER.name(each.kind, each.index) for each in found] == ["Ava Li", "GLUE"], "without typos"
    text = "Is sofia PATEL good at quac?"
    assert [text[m.start : m.end] for m in ROSTER.find(text)] == ["sofia PATEL", "quac"]
    assert not list(ROSTER.find(MatchingChatPartner.default_prompt().read_text(encoding="utf-8"))), "its names are none"


@pytest.mark.parametrize(
    "question",
    ["How is {r} on {p}?", "What about {r} for {p}", "Do you have {p} for {r}?", "Tell me {r}'s {p} score.", "{r}/{p}?"],
)  # fmt: skip
def test_every_pair_by_every_name(question: str) -> None:
    for r, reviewer in enumerate(ROSTER.reviewers):
        for p, paper in enumerate(ROSTER.papers):
            for name in (reviewer, *reviewer.split()):
                for title in (paper, ROSTER.short_papers[p], ROSTER.short_papers[p].lower()):
                    assert read(question.format(r=name, p=title), ROSTER).asked == ((r, p),)


TITLES = ("On the Dangers of Parrots", "For Whom: a Tale", "At Last", "In Context", "What is It", "Of Mice and Men")


@pytest.mark.parametrize("wording", [*ASK_PAIR, "What is {reviewer} on {paper}?", "score of {paper} for {reviewer}?"])
def test_title_of_any_first_word_is_asked_about(wording: str) -> None:
    roster = Roster(tuple(f"Name{i} Sur{i}" for i in "abcdef"), TITLES)
    for number, paper in enumerate(roster.short_papers):
        found = read(f"[message] {wording.format(reviewer='Namea Sura', paper=paper)}", roster)
        assert found.asked == ((0, number),) and not found.malformed


@pytest.mark.parametrize("told", ["{}: {}.", "{} is {}.", "{} = {}"])
def test_a_number_in_a_name_is_not_taken_for_a_score(told: str) -> None:
    roster = Roster(*(tuple(f"{kind} {number}" for number in range(1, 4)) for kind in ("Reviewer", "Paper")))
    for pair in ((0, 1), (2, 2)):
        for score in range(5):
            assert read(told.format(roster.pair(pair), score), roster).statements == ((pair, score),)
        assert read(f"What is {roster.pair(pair)}?", roster).asked == (pair,)


def test_the_scripted_askers_sentences_are_well_formed() -> None:
    for sentence in (*ASK_PAIR, *ASK_OPEN, *TELL):
        for reviewer in ROSTER.reviewers:
            for paper in (*ROSTER.papers, *ROSTER.short_papers):
                assert not read(sentence.format(reviewer=reviewer, paper=paper, value=62), ROSTER).malformed


def test_human_messages_are_heard(dialop_human: Path) -> None:
    lines = (dialop_human / "optimization.jsonl").open(encoding="utf-8")
    log = [action for line in lines for action in json.loads(line)["action_log"] if action["type"] == "message"]
    found = [read(action["message"]["data"], ROSTER) for action in log]
    assert len(found) > 1000
    assert 0.03 < sum(bool(each.asked) for each in found) / len(found) < 0.15  # people mostly state and suggest
    assert sum(each.malformed for each in found) < 0.005 * len(found)


# --- any text

vocabulary = st.sampled_from(
    """
    Ava Li Noah BLEU GLUE QuAC on for and or how is what about do you have I 62 7 ? . , : ; - ( ) / let's put [message]
    [reject] please tell me not besides than respectively who which any score <br> ’ R0 P0 1. 0.5 R1 P3 R9 P_ ~ 's better
    """.split()  # noqa: SIM905
)
TEXTS = st.one_of(
    st.text(max_size=300), st.text(string.printable, max_size=300), st.lists(vocabulary, max_size=40).map(" ".join)
)


@given(TEXTS, st.none() | TEXTS)
def test_no_text_raises_and_pairs_are_named(text: str, previous: str | None) -> None:
    heard = read(text, ROSTER)
    mentions = ROSTER.find(text)
    assert all(0 <= mention.start < mention.end <= len(text) for mention in mentions)
    reviewers = {mention.index for mention in mentions if mention.kind == "reviewer"}
    papers = {mention.index for mention in mentions if mention.kind == "paper"}
    for reviewer, paper in (*heard.asked, *(pair for pair, _ in heard.statements)):
        assert reviewer in reviewers and paper in papers
    assert len(set(heard.asked)) == len(heard.asked) and heard.malformed in (True, False)
    labels = classify(text, previous)
    assert labels <= set(KINDS) and classify(text, previous) == labels
    two = [(0, 0), (7, 7)]
    for pair in pairs_asked(text, ROSTER, previous) + stated_pairs(two, text, ROSTER):
        assert set(pair) <= set(range(8))
    assert set(answers(two, text, ROSTER)) <= set(two)
    # the only upper-case words are tokens, so that patterns can tell names by their capitals
    masked = mask(text, ROSTER).replace("\n", " ").split(" ")
    assert not any(word.isascii() and word.isalpha() and word != word.lower() for word in masked)


def test_broken_lines_are_put_together_and_a_tag_is_taken_off() -> None:
    text = "how is R0\non P0? these pairs:\n- R1 on P1\n2. R2 on P2\nvs. 0.5"
    assert list(sentences(text)) == [("how is R0 on P0", True), ("these pairs: R1 on P1, R2 on P2 vs. 0.5", False)]
    assert words("well,  well R0's P0") == "well , well R0 P0"
    assert untagged("**[Message]** hi") == ("message", "** hi") and untagged("hi [message]") == (None, "hi [message]")


def test_what_stands_far_down_is_not_read() -> None:
    text = "[message] " + "hello " * (READ_UP_TO // 6) + "What is Ava on BLEU?"
    assert not read(text, ROSTER).asked and not pairs_asked(text, ROSTER)
    assert read(text[:10] + text[-20:], ROSTER).asked == ((0, 0),)


LONG = 100_000
REPEATED = ["Is he good at BLEU? ", "Ava BLEU 62 ", "Ava on BLEU and ", "so, ", "anyone else ", "- Ava\n", "(Ava ", "(Ava) (a) ", " ", "<br ", "?", "[ ", "&#9", "<br" + " " * 999]  # fmt: skip


@pytest.mark.parametrize("part", REPEATED)
def test_long_text_of_anything_is_read_at_once(part: str) -> None:
    text = (part * (LONG // len(part) + 1))[:LONG]
    start = time.process_time()
    for tagged in (text, f"[message] {text}", f"[propose] <br{text}"):
        read(tagged, ROSTER)
        classify(tagged, tagged, ROSTER)
        parse_action(tagged, ROSTER)
    assert time.process_time() - start < 2


def test_numbers_of_a_character_that_does_not_exist_are_read() -> None:
    for number in ("&#" + "9" * 100_000, "&#x" + "f" * 100_000):
        assert isinstance(parse_proposal(number, ROSTER), ActionError)


# --- floors

ASKING = ("direct", "multi", "follow", "within")
# The shares of questions whose pairs are read exactly and of those that are not counted, of others that get a score, of open ones counted
BOUNDS = {"dev": (0.97, 0.01, 0.02, 0.93), "test": (0.90, 0.065, 0.05, 0.95)}


def wordings(name: str, *kinds: str) -> list[tuple[Reading, set[Pair]]]:
    rows = map(json.loads, (HERE / f"wordings_{name}.jsonl").open(encoding="utf-8"))
    some = [row for row in rows if row["kind"] in kinds]
    pairs = [{(ROSTER.reviewers.index(r), ROSTER.short_papers.index(p)) for r, p in row["pairs"]} for row in some]
    return [(read(row["text"], ROSTER, row["before"]), about) for row, about in zip(some, pairs, strict=True)]


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


# Rules were tried on the first two; of the third, only the figures and how many names a message has were looked at.
LEAST = {
    PEOPLE: {"seeking": 0.85, "any": 0.94, "pair": 0.66, "open": 0.75, "check": 0.88},
    MODELS: {"seeking": 0.88, "any": 0.93, "pair": 0.86, "open": 0.50, "check": 0.78, "counted": 0.88, "pairs": 0.77},
    HELD_OUT: {"seeking": 0.82, "any": 0.88, "pair": 0.74, "open": 0.58, "check": 0.62, "counted": 0.81, "pairs": 0.62},
}


@pytest.mark.parametrize("path", LEAST, ids=["people", "models", "models held out"])
def test_agrees_with_the_labels_of_messages(path: Path) -> None:
    if not path.exists():
        pytest.skip("the human dialogues are not at hand")
    found = agreement(read_labelled(path))
    assert {name: found[name] for name, least in LEAST[path].items() if found[name] < least} == {}
