"""Guess Who: one seat asks yes-or-no questions about a hidden character, and names it once. All that knows a character is in this folder.

env, settings     the environment, and its part of a config
board             one dealt game: the characters on the board and the hidden one
traits            the 24 characters and their traits, and the words by which a trait is known
reading           what a message asks, and what an answer says, in free wording
worth             what a question is worth; askers on paper, and the lines to compare a reward with
annotate          what a dialogue asked and was told, and what its partner did wrongly
partners          the scripted ones
players           scripted askers and cheats (`slim-rl lab incentives`)
demonstrations    what a tiny model is taught the game by
"""

from examples.guess_who.env import GuessWhoEnv

__all__ = ["GuessWhoEnv"]
