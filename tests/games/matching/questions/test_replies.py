"""What a reply makes of the message before it: told nothing, told in vain, told whatever is said, refused or left vague."""

from __future__ import annotations

import pytest

from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Turn
from slim_rl.environment import View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.partners.scripted import ForthcomingPartner, MutePartner, ShyPartner
from slim_rl.games.matching.questions.value import Knowledge
from slim_rl.games.matching.reading.reader import read
from slim_rl.measured import measured
from tests.games.matching.questions.told_setup import ALL, GAME, learnable, play, worded


def cross(number: int) -> str:
    names, papers = GAME.roster.reviewers, GAME.roster.short_papers
    return f"What is {names[0]}, {names[1]} and {names[2]} on {papers[number]}, {papers[number + 1]} and {papers[number + 2]}?"


def test_a_question_that_is_told_nothing_is_not_informative() -> None:
    row = measures(play([cross(0)], ShyPartner()))
    assert (row["questions"], row["pairs_asked"], row["informative_pairs"]) == (1, 9, 0)
    assert measures(play([cross(0), cross(3)], MutePartner()))["informative_pairs"] == 0


def test_a_pair_that_is_named_in_vain_may_be_asked_about_again() -> None:
    (a, x), *_ = learnable(GAME)
    name, paper = GAME.roster.reviewers[a], GAME.roster.short_papers[x]
    vague = f"What is {name}, {GAME.roster.reviewers[a - 1]} and {GAME.roster.reviewers[a - 2]} on {paper}?"
    row = measures(play([vague, f"What is {name} on {paper}?", f"What is {name} on {paper}?"], ShyPartner()))
    assert (row["pairs_asked"], row["informative_pairs"], row["repeats"]) == (3, 1, 2)


MALFORMED = [
    "What is {a} on on {x}?", "what is what is {a} on {x}", "{a} on for {x}?", "What is {a} {x} {b} {y}?", "Tell tell me {a} on {x}.",
    "{a} on {a}?", "for for {x} what is {a}", "What is {a} on {x}?<|im_end|>", "{x}: {x}, {a}?",
]  # fmt: skip


def test_what_is_no_sentence_is_no_question() -> None:
    said = [worded(text) for text in MALFORMED]
    assert all(read(text, GAME.roster).malformed for text in said)
    row = measures(play(said, ShyPartner()))
    assert (row["questions"], row["questions_any"], row["pairs_asked"], row["informative_pairs"]) == (0, 0, 0, 0)
    assert row["malformed"] == len(said)


class Lenient(ShyPartner):
    """Answers what is no sentence, too."""

    async def act(self, view: View) -> Turn:
        heard = read(view.history[-1].text, view.private.roster)
        table, roster = view.private.table, view.private.roster
        told = [
            f"{roster.reviewers[r]} on {roster.short_papers[p]}: {table[r][p]}."
            for r, p in heard.asked
            if table[r][p] is not None
        ]
        return Turn(f"[message] {' '.join(told) or 'Hm.'}")


def test_unless_it_is_answered() -> None:
    dialogue = play([worded("What is {a} on on {x}?")], Lenient())
    assert dialogue.turns[0].malformed and dialogue.turns[0].questions == ["pair"]
    row = measures(dialogue)
    assert (row["questions"], row["informative_pairs"], row["pairs_volunteered"]) == (1, 1, 0)


@pytest.mark.parametrize(
    "said", ["Hello.", "I propose the plan that I sent.", "Let's put {a} on {x}.", "I have 40 for {a} on {x}."]
)
def test_who_tells_whatever_is_said_makes_no_question_of_it(said: str) -> None:
    """The forthcoming partner volunteers its whole table: that was not asked for."""
    dialogue = play([worded(said)], ForthcomingPartner())
    row = measures(dialogue)
    assert (row["questions"], row["pairs_asked"], row["informative_pairs"]) == (0, 0, 0)
    assert row["pairs_volunteered"] == len(learnable(GAME)) > 0


# Words that no rule takes for a question, and a partner that answers them: (message, reply, pairs that were asked for)
SAID = [
    ("{a}, {x}, you know the drill.", "{a} on {x}: {v}.", 1),
    ("Reviewers: {a}, {b}\nPapers: {x}, {y}", "{a} on {x}: {v}.", 1),
    ("{a} is a mystery to me where {x} is concerned.", "I have {v} for {a} on {x}.", 1),
    ("{a} is a mystery to me where {x} is concerned.", "{a} on {x}: {v}. {b} on {y}: 12.", 0),  # it volunteers
    ("I have {v} for {a} on {x}.", "Noted: {a} on {x} is {v}.", 0),  # it only repeats
    ("Hello there.", "{a} on {x}: {v}.", 0),
    ("Okay.", "I have no score for {a} on {x}.", 0),
]


@pytest.mark.parametrize(("said", "reply", "asked"), SAID)
def test_message_answered_with_a_score_is_a_question(said: str, reply: str, asked: int) -> None:
    (a, x), (b, y), *_ = learnable(GAME)
    names, papers = GAME.roster.reviewers, GAME.roster.short_papers
    words = {"a": names[a], "b": names[b], "x": papers[x], "y": papers[y], "v": GAME.table[a][x]}

    class Answers(ShyPartner):
        async def act(self, view: View) -> Turn:
            return Turn(f"[message] {reply.format(**words)}")

    dialogue = play([said.format(**words)], Answers())
    row = measures(dialogue)
    assert (row["questions"], row["pairs_asked"], row["informative_pairs"]) == (asked, asked, asked)
    assert row["pairs_volunteered"] == (0 if asked else len(dialogue.turns[1].stated or ()))
    assert (dialogue.turns[0].question_value is not None) == bool(asked)


def test_names_left_out_are_taken_from_the_partner() -> None:
    (a, x), *_ = learnable(GAME)
    name, paper, value = GAME.roster.reviewers[a], GAME.roster.short_papers[x], GAME.table[a][x]

    class Offers(ShyPartner):
        async def act(self, view: View) -> Turn:
            first = len(view.history) == 1
            return Turn(f"[message] {name} is free." if first else f"[message] {name} on {paper}: {value}.")

    row = measures(play(["Good day.", f"{paper} remains."], Offers()))
    assert (row["questions"], row["informative_pairs"]) == (1, 1)


def test_forbidden_questions_are_those_the_partner_answers() -> None:
    for wording in ALL:
        said = worded(wording)
        if read(said, GAME.roster).asked:
            assert measured(MatchingEnv).asks(f"[message] {said}"), wording
    assert not measured(MatchingEnv).asks("[message] Hello.") and not measured(MatchingEnv).asks(
        "[propose]\nBLEU: Ava Li"
    )


def test_a_refused_pair_promises_nothing() -> None:
    """A partner that keeps a score to itself will keep it: to ask again is not the best question for ever."""
    knowledge = Knowledge(GAME, 0)
    best = max(learnable(GAME), key=lambda pair: knowledge.expected_value[pair])
    name, paper = GAME.roster.reviewers[best[0]], GAME.roster.short_papers[best[1]]
    asks = f"What is {name} on {paper}?"
    dialogue = play([asks, asks], ShyPartner(answers=0.0))
    first, again = dialogue.turns[0], dialogue.turns[2]
    assert first.regret == 0 and again.regret is not None and again.regret > 0


def test_a_vague_reply_refuses_nothing() -> None:
    dialogue = play([cross(0), cross(0)], ShyPartner())
    assert dialogue.turns[0].regret == dialogue.turns[2].regret


class Repeats(ShyPartner):
    """Affirms whatever it is asked, knowing nothing."""

    async def act(self, view: View) -> Turn:
        words = view.history[-1].text.removeprefix("[message] Is ").removesuffix(" 50?")
        return Turn(f"[message] Yes. {words} is 50.")


def test_annotate_echoed_value_informs_of_nothing() -> None:
    pairs = [GAME.roster.pair(pair) for pair in learnable(GAME)[:9]]
    row = measures(play([f"Is {pair} 50?" for pair in pairs], Repeats()))
    assert (row["questions"], row["pairs_asked"]) == (9, 9)
    assert (row["informative_pairs"], row["question_value"]) == (0, 0)


@pytest.mark.parametrize(
    ("message", "reply", "informative"),
    [
        ("What is {a}?", "{a}: {v}.", 1),
        ("What is {a}?", "{a}: {wrong}.", 0),
        ("What is {a}?", "{wrong}.", 0),
        ("Is {a} {v}?", "Yes, {v}.", 0),
        ("{a}, please. Is it {v}?", "{v}.", 0),
        ("Is {a} above {v}?", "{a}: {v}.", 1),
        ("I have {v} for {b}. What is {a}?", "{a}: {v}.", 1),
        ("What is {a}?", "{a}: {v}. {b}: {wrong}.", 1),
    ],
)
def test_annotate_value_informs_only_if_true_and_new(message: str, reply: str, informative: int) -> None:
    one, two, *_ = learnable(GAME)
    value = GAME.table[one[0]][one[1]]
    words = {"a": GAME.roster.pair(one), "b": GAME.roster.pair(two), "v": value, "wrong": value + 1}

    class Answers(ShyPartner):
        async def act(self, view: View) -> Turn:
            return Turn(f"[message] {reply.format(**words)}")

    dialogue = play([message.format(**words)], Answers())
    assert measures(dialogue)["informative_pairs"] == informative
    assert (dialogue.turns[0].question_value != 0) <= bool(informative)
