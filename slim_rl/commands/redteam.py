"""`slim-rl redteam`: what scripted cheats earn with a config's partner, beside honest players."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from slim_rl.commands.options import ConfigFile, Overrides
from slim_rl.commands.screen import working
from slim_rl.config import load_config
from slim_rl.environment import environment_class


def command(
    config: ConfigFile,
    num_games: Annotated[int, typer.Option("--num-games", "--games", min=1, help="games a player")] = 200,
    overrides: Overrides = None,
) -> None:
    """Play scripted cheats against the config's partner, and print what each earns beside an honest player."""
    settings = load_config(config, overrides or ())
    with working(f"playing {num_games} games a player"):
        found = environment_class(settings.environment).redteam(settings, num_games)
    Console().print(found)
