"""Guess Who's settings: the `game` section of a config."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from examples.guess_who.traits import CHARACTERS
from slim_rl import Section


class GuessWhoSettings(Section):
    """Guess Who."""

    size: int = Field(12, ge=2, le=len(CHARACTERS))
    """characters on the board, drawn for each game from the 24"""
    max_questions: int = Field(8, ge=1)
    """messages that the asker may send; one more ends the game with reward 0"""
    max_errors: int = Field(3, ge=1)
    """refused actions in a row that end the game"""
    tiles: bool = True
    """before each of its turns the asker reads which characters are left, and [guess] alone names the first of them; false: it has to keep
    track itself"""
    rules: Literal["full", "none"] = "full"
    """full: the policy is told the rules; none: for a model that was taught them by demonstrations"""
