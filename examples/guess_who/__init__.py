"""Guess Who: one seat asks yes-or-no questions about a hidden character, and names it once.

env, settings     the environment, and its part of a config
board             one dealt game: the characters on the board and the hidden one
traits            the 24 characters and their traits, and the words that name a trait
reading           question of a message and meaning of an answer, in free wording
worth             value of questions; simulated askers and reference lines
annotate          annotations of dialogues, and faults of partners
partners          the scripted ones
players           scripted askers and cheats (`slim-rl lab incentives`)
demonstrations    demonstrations for the warm start
"""

from examples.guess_who.env import GuessWhoEnv

__all__ = ["GuessWhoEnv"]
