"""Names in free text: all that is named is found, and nothing that is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.errors import ConfigError
from slim_rl.games.matching.actions import Action, format_proposal, parse_action
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.study.demonstrations import ASK_PAIR

ROSTER = Roster.default()


def names(text: str, roster: Roster = ROSTER, typos: bool = True) -> list[str]:
    return [roster.name(mention.kind, mention.index) for mention in roster.find(text, typos)]


def test_without_typos_only_exact_names() -> None:
    assert names("Sophia on Bleau and Ava on GLUE", typos=False) == ["Ava Li", "GLUE"]


def test_spans_cover_the_words() -> None:
    text = "Is sofia PATEL good at quac?"
    assert [text[m.start : m.end] for m in ROSTER.find(text)] == ["sofia PATEL", "quac"]


def test_ambiguous_words_name_nobody() -> None:
    roster = Roster(("Ava Li", "Ava Smith", "Noah Reed"), ("BERT: one", "BERT Large: two", "Reed"))
    assert names("Ava, Reed", roster) == []
    assert names("ava smith and Ava Li on bert large and BERT", roster) == ["Ava Smith", "Ava Li", "BERT Large", "BERT"]
    assert [len(hit.meanings) for hit in roster.hits("Ava")] == [2]


def test_a_short_title_is_its_own_even_where_anothers_begins_so() -> None:
    roster = Roster(("Ava Li", "Bo Reed"), ("BERT: Large Models", "BERT Large"))
    assert names("BERT Large and BERT: Large Models", roster) == ["BERT Large", "BERT"]
    assert read("What is Ava Li on BERT Large?", roster).asked == ((0, 1),)
    plan = parse_action(format_proposal((1, 0), roster), roster)
    assert isinstance(plan, Action) and plan.assignment == (1, 0)


def test_a_full_stop_of_a_name_ends_no_sentence() -> None:
    roster = Roster(("Lee Jr.", "Bo Reed"), ("BLEU", "GLUE"))
    for text in ("What is Lee Jr. on BLEU?", "How good is Lee Jr. for BLEU?", "What is BLEU for Lee Jr.?"):
        assert read(text, roster).asked == ((0, 0),), text
    heard = read("Lee Jr. on BLEU: 62. I have 40 for BLEU and Lee Jr. What is Bo Reed on GLUE?", roster)
    assert heard.asked == ((1, 1),) and ((0, 0), 62) in heard.statements


def test_a_name_that_says_a_word_twice_is_no_slip_of_the_tongue() -> None:
    roster = Roster(("Li Li", "Bo Reed"), ("BLEU", "GLUE"))
    heard = read("What is Li Li on BLEU?", roster)
    assert heard.asked == ((0, 0),) and not heard.malformed
    for text in ("What is Li Li Li Li on BLEU?", "What is Bo Bo on BLEU?", "What is is Li Li on BLEU?"):
        assert read(text, roster).malformed, text


def test_a_slip_that_could_be_two_names_names_nobody() -> None:
    roster = Roster(("Marion Ash", "Marian Elm"), ("A: x", "B: y"))
    assert names("Marien", roster) == []
    assert names("Marrion", roster) == ["Marion Ash"]


def test_short_papers_and_first_names() -> None:
    roster = Roster(("Ava Li", "Bo"), ("BLEU: a: b", "No colon here"))
    assert roster.short_papers == ("BLEU", "No colon here")
    assert roster.first_names == ("Ava", "Bo")
    assert names("no COLON  here for bo", roster) == ["No colon here", "Bo"]


@pytest.mark.parametrize(
    ("reviewers", "papers"),
    [
        (("Ava", "Bo"), ("X",)), (("Ava", "ava"), ("X", "Y")), (("Ava", "Bo"), ("X: one", "x: two")),
        (("Ava", "!"), ("X", "Y")), (("Ava", "Bo"), ("X", "7")), (("Ava", "Bo"), ("ava", "Y")),
        (("Ava", "Bo"), ("X; Y", "Z")), (("Ava", "B\no"), ("X", "Y")), ((), ()),
    ],
)  # fmt: skip
def test_names_that_cannot_be_told_apart_are_refused(reviewers: tuple[str, ...], papers: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        Roster(reviewers, papers)


@pytest.mark.parametrize(
    ("reviewer", "paper", "word"),
    [
        ("Will Smith", "X", "will"),
        ("Bora Can", "X", "can"),
        ("No One", "X", "no"),
        ("Ava Li", "Score: a Metric", "score"),
    ],
)
def test_roster_name_of_a_question_word_is_refused(reviewer: str, paper: str, word: str) -> None:
    with pytest.raises(ConfigError, match=rf"can be written as '{word}'.*write another name"):
        Roster((reviewer, "B C"), (paper, "Y"))


TITLES = ("On the Dangers of Parrots", "For Whom: a Tale", "At Last", "In Context", "What is It", "Of Mice and Men")


@pytest.mark.parametrize("wording", [*ASK_PAIR, "What is {reviewer} on {paper}?", "score of {paper} for {reviewer}?"])
def test_interpret_title_of_any_first_word_is_asked_about(wording: str) -> None:
    roster = Roster(tuple(f"Name{i} Sur{i}" for i in "abcdef"), TITLES)
    for number, paper in enumerate(roster.short_papers):
        message = f"[message] {wording.format(reviewer='Namea Sura', paper=paper)}"
        assert not read(message, roster).malformed
        assert read(message, roster).asked == ((0, number),)


@pytest.mark.parametrize("score", range(5))
def test_a_number_in_a_name_is_not_taken_for_a_score(score: int) -> None:
    roster = Roster(*(tuple(f"{kind} {number}" for number in range(1, 4)) for kind in ("Reviewer", "Paper")))
    for pair in ((0, 1), (2, 2)):
        for said in (
            f"{roster.pair(pair)}: {score}.",
            f"{roster.pair(pair)} is {score}.",
            f"{roster.pair(pair)} = {score}",
        ):
            assert read(said, roster).statements == ((pair, score),), said
        assert read(f"What is {roster.pair(pair)}?", roster).asked == (pair,)


def test_default_has_eight_names() -> None:
    assert Roster.default(3).reviewers == ("Ava Li", "Daniel Nguyen", "Sofia Patel")
    assert Roster.default(9) == Roster()


@given(st.text())
def test_any_text_is_searched_without_error(text: str) -> None:
    for mention in ROSTER.find(text):
        assert 0 <= mention.start < mention.end <= len(text)


def test_names_in_the_partners_prompt_are_not_the_games() -> None:
    assert not list(Roster().find(MatchingChatPartner.default_prompt().read_text(encoding="utf-8")))


def test_a_title_ends_where_a_sentence_goes_on() -> None:
    assert read("[message] Ava Li on BLEU? A number is enough.", ROSTER).asked == ((0, 0),)
    assert read("[message] Sofia Patel: BLEU ?, Electra ?", ROSTER).asked == ((2, 0), (2, 1))
