"""A score that is told in answer to a message was asked for, however the message is worded; and a question that is told nothing is not informative."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

from slim_rl.config import Limits
from slim_rl.dialogue.loop import Speaker, play_dialogue
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.partner import Partner, Reply
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import View
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.partners.scripted import ForthcomingPartner, MutePartner, ShyPartner
from slim_rl.games.matching.questions import annotate
from slim_rl.games.matching.questions.value import Knowledge
from slim_rl.games.matching.reading.form import is_malformed
from slim_rl.games.matching.reading.interpretation import interpret
from slim_rl.games.matching.settings import MatchingSettings

GAME = next(generate_games(1, MatchingSettings(scales=False), seed=3))
MANY = 64  # pairs that the partner answers in one message: all of them

# {a}, {b}, {c}: reviewers; {x}, {y}, {z}: papers
WORDINGS = r"""
Please provide the score for {a} on {x}.
Please provide your scores for {a} on {x} and {b} on {y}.
Kindly confirm your score for {a} on {x}.
Kindly share the value you have for {b} on {y}, please.
How about {a} on {x}?
How about {a} for {x}, and {b} for {y}?
I need the score for {a} on {x}.
I need to know {a}'s score on {x}.
I need your number for {a} on {x} before I can plan.
I would like to know how {a} does on {x}.
I'd appreciate your score for {a} on {x}.
Could you please tell me what you have for {a} on {x}?
Would you kindly report {a} on {x}?
Can you look up {a} in the {x} column?
Compare {a} on {x} with {b} on {y}.
Compare {a} on {x} with {b} on {y}, please.
Please compare {a} and {b} on {x}.
Which is higher, {a} on {x} or {b} on {y}?
Is {a} better than {b} on {x}?
Between {a} and {b}, who scores more on {x}?
Rank {a}, {b} and {c} for {x}.
Tell me {a} on {x}.
Give me {a} on {x} and {b} on {x}.
Share {a} on {x}.
Report: {a} on {x}.
List your scores for {a} on {x}, {y} and {z}.
State your score for {a} on {x}.
Provide {a} on {x}.
Reveal what you have for {a} on {x}.
Name your score for {a} on {x}.
Send me {a}'s {x} score.
Show me {a} on {x}.
{a} on {x}?
{a} / {x}?
{a} on {x}, please.
{a} on {x}, please?
{a}'s {x} score?
{a} - {x} - what do you see?
{x}: {a}?
And {a} on {x}?
Score for {a} on {x}?
Your score for {a} on {x}?
Any value for {a} on {x}?
Anything on {a} for {x}?
What about {a} on {x}?
What's {a} on {x}, and {b} on {y}?
What is {a} on {x}? And on {y}?
What do you have for {a} on {x}, {b} on {y} and {c} on {z}?
Do you see {a} on {x}?
Do you happen to have a number for {a} on {x}?
Does your table show {a} on {x}?
Have you got {a} on {x}?
Is there a score for {a} on {x} in your table?
I have no score for {a} on {x}. Do you?
I can't see {a} on {x}. What about you?
I have 40 for {a} on {x}. What do you have?
My table is blank for {a} on {x}; what is yours?
I wonder what you see for {a} on {x}.
I was wondering about {a} on {x}: do you have a score?
Wondering how good {a} is on {x}.
Let me know your score for {a} on {x}.
Let me know about {a} on {x} and {b} on {y}.
For {a} on {x}, what is your score?
Regarding {a} on {x}: what do you have?
With respect to {x}, how strong is {a}?
How strong is {a} on {x}, how strong is {b} on {y}?
What are your scores for these pairs?\n- {a} on {x}\n- {b} on {y}\n- {c} on {z}
Please share your scores for:\n1. {a} on {x}\n2. {b} on {y}
Could you tell me:\n* {a} on {x}\n* {b} on {y}
Questions:\n- What is {a} on {x}?\n- What is {b} on {y}?
What do you have for the following?\n{a} on {x}\n{b} on {y}
| reviewer | paper | your score |\n|---|---|---|\n| {a} | {x} | ? |\n| {b} | {y} | ? |
Please fill in your scores: {a} on {x}: ?, {b} on {y}: ?
Before I propose, one question: {a} on {x}?
Thanks! Next: what is {a} on {x}?
Good. Then tell me {b} on {y}, too.
**Question:** what is {a}'s score on {x}?
Hello! I am looking for your score for {a} on {x}.
May I ask for {a} on {x}?
Might I know {a}'s value on {x}?
We need {a}'s {x} score; can you give it?
It would help me to know {a} on {x}.
If you see {a} on {x}, tell me the number.
{a} would suit {x}, wouldn't you say? What number do you have?
Should we put {a} on {x}? What is your score there?
Check {a} on {x} in your table, please.
Put your number for {a} on {x} here: ___
"""


class Says:
    """Says its messages one by one, then greets."""

    identity = {"kind": "says"}  # noqa: RUF012

    def __init__(self, messages: Sequence[str]) -> None:
        self.messages = messages

    async def reply(self, view: View) -> Reply:
        own = sum(utterance.seat == view.seat for utterance in view.history)
        text = self.messages[own] if own < len(self.messages) else "Hello."
        return Reply(text if text.startswith("[propose]") else f"[message] {text}")


def play(messages: Sequence[str], partner: Partner, game: GameState = GAME, seed: int = 0) -> Dialogue:
    env = MatchingEnv(max_turns=2 * len(messages))
    played = play_dialogue(env, Speaker(Says(messages)), partner, None, Limits(), game_state=game, id="d", seed=seed)
    dialogue = asyncio.run(played)
    annotate(dialogue)
    return dialogue


def learnable(game: GameState) -> list[tuple[int, int]]:
    """Pairs that the partner sees and the policy does not, in an order in which neighbours differ on both sides."""
    cells = [(r, (r + step) % game.n) for step in range(game.n) for r in range(game.n)]
    return [(r, p) for r, p in cells if game.mask2[r][p] and not game.mask1[r][p]]


def worded(wording: str, game: GameState = GAME, at: int = 0) -> str:
    pairs = learnable(game)
    (a, x), (b, y), (c, z) = (pairs[(at + step) % len(pairs)] for step in range(3))
    names, papers = game.roster.reviewers, game.roster.short_papers
    fields = {"a": names[a], "b": names[b], "c": names[c], "x": papers[x], "y": papers[y], "z": papers[z]}
    return wording.replace("\\n", "\n").format(**fields)


ALL = [line for line in WORDINGS.strip().splitlines() if line]


def test_every_wording_that_the_partner_answers_is_a_question() -> None:
    """Real dialogues: whoever is told a score asked for it."""
    assert len(ALL) >= 60
    answered = 0
    for wording in ALL:
        dialogue = play([worded(wording)], ShyPartner(max_pairs=MANY))
        question, reply = dialogue.turns
        told = set(reply.told or ())
        assert told <= set(question.pairs or ()), wording
        assert bool(told) <= bool(question.seeking), wording
        row = measures(dialogue)
        assert row["told_uncounted"] == 0, wording
        assert row["informative_pairs"] == len(told), wording
        answered += bool(told)
    assert answered >= 60


def test_nine_comparisons_are_nine_questions() -> None:
    pairs = learnable(GAME)
    names, papers = GAME.roster.reviewers, GAME.roster.short_papers
    said = [
        f"Compare {names[a]} on {papers[x]} with {names[b]} on {papers[y]}" for (a, x), (b, y) in pairwise(pairs[:10])
    ]
    row = measures(play(said, ShyPartner()))
    assert (row["questions"], row["told_uncounted"]) == (9, 0)
    assert row["informative_pairs"] == 10


OPENINGS = (
    "", "please ", "kindly ", "could you ", "I need ", "how about ", "what is ", "tell me ", "compare ", "confirm ", "any idea on ",
    "the score for ", "your number for ", "I have nothing for ", "share ", "- ", "let me know ", "should we put ", "hello, ",
)  # fmt: skip
VERBS = (
    "",
    "provide the score for ",
    "share ",
    "tell me ",
    "give ",
    "report ",
    "know ",
    "check ",
    "the value of ",
    "about ",
)
FORMS = (
    "{a} on {x}",
    "{a} for {x}",
    "{a}'s {x}",
    "{x} for {a}",
    "{a} and {b} on {x}",
    "{a} on {x}, {b} on {y}",
    "- {a} on {x}\n- {b} on {y}",
)
ENDS = (
    "",
    ".",
    "?",
    ", please.",
    "!",
    " on your side?",
    " - do you have that?",
    " vs {c} on {z}?",
    ". Thanks!",
    "; and you?",
)


@settings(deadline=None, max_examples=400)
@given(draw.tuples(*map(draw.sampled_from, (OPENINGS, VERBS, FORMS, ENDS))), draw.integers(0, 12))
def test_every_combination_that_is_answered_is_a_question(parts: tuple[str, ...], at: int) -> None:
    dialogue = play([worded("".join(parts), at=at)], ShyPartner(max_pairs=MANY))
    assert measures(dialogue)["told_uncounted"] == 0
    assert set(dialogue.turns[1].told or ()) <= set(dialogue.turns[0].pairs or ())


@settings(deadline=None, max_examples=100)
@given(
    draw.lists(draw.tuples(*map(draw.sampled_from, (OPENINGS, VERBS, FORMS, ENDS))), min_size=2, max_size=5),
    draw.integers(0, 99),
)
def test_so_it_is_in_whole_dialogues_with_any_shy_partner(said: list[tuple[str, ...]], seed: int) -> None:
    messages = [worded("".join(parts), at=3 * number) for number, parts in enumerate(said)]
    dialogue = play(messages, ShyPartner(max_pairs=4, answers=0.7), seed=seed)
    row = measures(dialogue)
    told = {pair for turn in dialogue.turns for pair in turn.told or () if turn.role == "partner"}
    assert row["told_uncounted"] == 0
    assert row["informative_pairs"] == len(told & set(learnable(GAME)))


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
    assert all(is_malformed(text, GAME.roster) for text in said)
    row = measures(play(said, ShyPartner()))
    assert (row["questions"], row["questions_any"], row["pairs_asked"], row["informative_pairs"]) == (0, 0, 0, 0)
    assert row["malformed"] == len(said)


class Lenient(ShyPartner):
    """Answers what is no sentence, too."""

    async def reply(self, view: View) -> Reply:
        heard = interpret(view.history[-1].text, view.private.roster)
        table, roster = view.private.table, view.private.roster
        told = [
            f"{roster.reviewers[r]} on {roster.short_papers[p]}: {table[r][p]}."
            for r, p in heard.asked
            if table[r][p] is not None
        ]
        return Reply(f"[message] {' '.join(told) or 'Hm.'}")


def test_unless_it_is_answered() -> None:
    dialogue = play([worded("What is {a} on on {x}?")], Lenient())
    assert dialogue.turns[0].malformed and dialogue.turns[0].questions == ["pair"]
    row = measures(dialogue)
    assert (row["questions"], row["informative_pairs"], row["told_uncounted"]) == (1, 1, 0)


@pytest.mark.parametrize(
    "said", ["Hello.", "I propose the plan that I sent.", "Let's put {a} on {x}.", "I have 40 for {a} on {x}."]
)
def test_who_tells_whatever_is_said_makes_no_question_of_it(said: str) -> None:
    """The forthcoming partner volunteers its whole table: that was not asked for."""
    dialogue = play([worded(said)], ForthcomingPartner())
    row = measures(dialogue)
    assert (row["questions"], row["pairs_asked"], row["informative_pairs"]) == (0, 0, 0)
    assert row["told_uncounted"] == len(learnable(GAME)) > 0


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
def test_a_reply_that_tells_what_the_message_names_makes_it_a_question(said: str, reply: str, asked: int) -> None:
    (a, x), (b, y), *_ = learnable(GAME)
    names, papers = GAME.roster.reviewers, GAME.roster.short_papers
    words = {"a": names[a], "b": names[b], "x": papers[x], "y": papers[y], "v": GAME.table[a][x]}

    class Answers(ShyPartner):
        async def reply(self, view: View) -> Reply:
            return Reply(f"[message] {reply.format(**words)}")

    dialogue = play([said.format(**words)], Answers())
    row = measures(dialogue)
    assert (row["questions"], row["pairs_asked"], row["informative_pairs"]) == (asked, asked, asked)
    assert row["told_uncounted"] == (0 if asked else len(dialogue.turns[1].told or ()))
    assert (dialogue.turns[0].question_value is not None) == bool(asked)


def test_what_the_message_leaves_out_is_taken_from_the_partners_words() -> None:
    (a, x), *_ = learnable(GAME)
    name, paper, value = GAME.roster.reviewers[a], GAME.roster.short_papers[x], GAME.table[a][x]

    class Offers(ShyPartner):
        async def reply(self, view: View) -> Reply:
            first = len(view.history) == 1
            return Reply(f"[message] {name} is free." if first else f"[message] {name} on {paper}: {value}.")

    row = measures(play(["Good day.", f"{paper} remains."], Offers()))
    assert (row["questions"], row["informative_pairs"]) == (1, 1)


def test_forbidding_questions_forbids_what_the_partner_would_answer() -> None:
    for wording in ALL:
        said = worded(wording)
        if interpret(said, GAME.roster).asked:
            assert MatchingEnv.asks(f"[message] {said}"), wording
    assert not MatchingEnv.asks("[message] Hello.") and not MatchingEnv.asks("[propose]\nBLEU: Ava Li")


def test_a_refused_pair_promises_nothing() -> None:
    """A partner that keeps a score to itself will keep it: to ask again is not the best question for ever."""
    knowledge = Knowledge(GAME, 0)
    best = max(learnable(GAME), key=lambda pair: knowledge.promise[pair])
    name, paper = GAME.roster.reviewers[best[0]], GAME.roster.short_papers[best[1]]
    asks = f"What is {name} on {paper}?"
    dialogue = play([asks, asks], ShyPartner(answers=0.0))
    first, again = dialogue.turns[0], dialogue.turns[2]
    assert first.regret == 0 and again.regret is not None and again.regret > 0


def test_a_vague_reply_refuses_nothing() -> None:
    dialogue = play([cross(0), cross(0)], ShyPartner())
    assert dialogue.turns[0].regret == dialogue.turns[2].regret


@pytest.mark.parametrize("doubts", [False, True])
def test_what_a_rejection_names_is_counted_as_told(doubts: bool) -> None:
    game = next(generate_games(1, MatchingSettings(p_observed_2=0.9), seed=3))
    worst = min((tuple(random.Random(i).sample(range(8), 8)) for i in range(50)), key=game.score)
    partner = ShyPartner(accept_fraction=1.0, doubts=doubts)
    dialogue = play([format_proposal(worst, game.roster), "Hm."], partner, game)
    row = measures(dialogue)
    named = sum(
        f"{r} on {p}" in dialogue.turns[-1].text for r in game.roster.reviewers for p in game.roster.short_papers
    )
    assert (row["stop_reason"], row["doubts_told"]) == ("rejected", named)
    assert (named > 0) == doubts and row["informative_pairs"] == 0
