"""Asks a dialogue's own game for its reference lines and boards, so the analysis itself knows no game."""

from __future__ import annotations

from functools import cache

from slim_rl.environment import BaseEnvironment, environment_class
from slim_rl.errors import SlimError


@cache
def game_of(environment: str) -> type[BaseEnvironment]:
    """The environment's class. One that cannot be imported here offers nothing, as `BaseEnvironment` does itself."""
    try:
        return environment_class(environment)
    except SlimError:
        return BaseEnvironment
