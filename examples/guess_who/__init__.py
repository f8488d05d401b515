"""Guess Who: one seat asks yes-or-no questions about a hidden character, and names it once.

game        characters, settings, the environment, and its scripted partners
measures    what the questions of a dialogue are worth
players     scripted askers, and demonstrations for the warm start
"""

from examples.guess_who.game import GuessWhoEnv

__all__ = ["GuessWhoEnv"]
