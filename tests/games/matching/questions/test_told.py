"""A score that is told in answer to a message was asked for, however the message is worded."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as draw

from slim_rl.dialogue.measures import measures
from slim_rl.games.matching.partners.scripted import ShyPartner
from tests.games.matching.questions.told_setup import ALL, GAME, MANY, learnable, play, worded


def test_every_wording_that_the_partner_answers_is_a_question() -> None:
    """Real dialogues: whoever is told a score asked for it."""
    assert len(ALL) >= 60
    answered = 0
    for wording in ALL:
        dialogue = play([worded(wording)], ShyPartner(max_pairs=MANY))
        question, reply = dialogue.turns
        told = set(reply.stated or ())
        assert told <= set(question.pairs or ()), wording
        assert bool(told) <= bool(question.seeking), wording
        row = measures(dialogue)
        assert row["pairs_volunteered"] == 0, wording
        assert row["informative_pairs"] == len(told & set(learnable(GAME))), wording
        answered += bool(told)
    assert answered >= 60


def test_nine_comparisons_are_nine_questions() -> None:
    pairs = learnable(GAME)
    names, papers = GAME.roster.reviewers, GAME.roster.short_papers
    said = [
        f"Compare {names[a]} on {papers[x]} with {names[b]} on {papers[y]}" for (a, x), (b, y) in pairwise(pairs[:10])
    ]
    row = measures(play(said, ShyPartner()))
    assert (row["questions"], row["pairs_volunteered"]) == (9, 0)
    assert row["informative_pairs"] == 10


OPENINGS = (
    "", "please ", "kindly ", "could you ", "I need ", "how about ", "what is ", "tell me ", "compare ", "confirm ", "any idea on ",
    "the score for ", "your number for ", "I have nothing for ", "share ", "- ", "let me know ", "should we put ", "hello, ",
)  # fmt: skip
VERBS = (
    "", "provide the score for ", "share ", "tell me ", "give ", "report ", "know ", "check ", "the value of ",
    "about ",
)  # fmt: skip
FORMS = (
    "{a} on {x}", "{a} for {x}", "{a}'s {x}", "{x} for {a}", "{a} and {b} on {x}", "{a} on {x}, {b} on {y}",
    "- {a} on {x}\n- {b} on {y}",
)  # fmt: skip
ENDS = (
    "", ".", "?", ", please.", "!", " on your side?", " - do you have that?", " vs {c} on {z}?", ". Thanks!",
    "; and you?",
)  # fmt: skip


@settings(deadline=None, max_examples=120)
@given(draw.tuples(*map(draw.sampled_from, (OPENINGS, VERBS, FORMS, ENDS))), draw.integers(0, 12))
def test_every_combination_that_is_answered_is_a_question(parts: tuple[str, ...], at: int) -> None:
    dialogue = play([worded("".join(parts), at=at)], ShyPartner(max_pairs=MANY))
    assert measures(dialogue)["pairs_volunteered"] == 0
    assert set(dialogue.turns[1].stated or ()) <= set(dialogue.turns[0].pairs or ())


@settings(deadline=None, max_examples=40)
@given(
    draw.lists(draw.tuples(*map(draw.sampled_from, (OPENINGS, VERBS, FORMS, ENDS))), min_size=2, max_size=5),
    draw.integers(0, 99),
)
def test_so_it_is_in_whole_dialogues_with_any_shy_partner(said: list[tuple[str, ...]], seed: int) -> None:
    messages = [worded("".join(parts), at=3 * number) for number, parts in enumerate(said)]
    dialogue = play(messages, ShyPartner(max_pairs=4, answers=0.7), seed=seed)
    row = measures(dialogue)
    told = {pair for turn in dialogue.turns for pair in turn.stated or () if turn.role == "partner"}
    assert row["pairs_volunteered"] == 0
    assert row["informative_pairs"] == len(told & set(learnable(GAME)))
