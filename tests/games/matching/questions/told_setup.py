"""Dialogues of a player who says given messages, and what it may learn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slim_rl.config import Limits
from slim_rl.dialogue.loop import play_dialogue
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.environment import View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.questions import annotate
from slim_rl.games.matching.state import GameState, MatchingSettings

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
score for {a} on {x}
affinity between {a} and {x}
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


class Says(Partner):
    """Says its messages one by one, then greets."""

    identity = {"kind": "says"}  # noqa: RUF012

    def __init__(self, messages: Sequence[str]) -> None:
        self.messages = messages

    async def act(self, view: View) -> Turn:
        own = sum(utterance.seat == view.seat for utterance in view.history)
        text = self.messages[own] if own < len(self.messages) else "Hello."
        return Turn(text if text.startswith("[propose]") else f"[message] {text}")


def play(messages: Sequence[str], partner: Partner, game: GameState = GAME, seed: int = 0) -> Dialogue:
    env = MatchingEnv(max_turns=2 * len(messages))
    played = play_dialogue(env, Says(messages), partner, None, Limits(), game_state=game, id="d", seed=seed)
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
