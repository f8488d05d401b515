"""`slim-rl lab incentives`: estimates, before training, whether asking raises the reward under a config."""

from typing import Annotated

import typer

from slim_rl.commands.options import ConfigFile, Overrides
from slim_rl.commands.screen import print_tables, show_status
from slim_rl.config import load_config
from slim_rl.errors import ConfigError
from slim_rl.formats import count
from slim_rl.lab.incentives import GAMES, QUESTIONS, measure


def command(
    config: ConfigFile,
    num_games: Annotated[int, typer.Option("--num-games", "--games", min=2, help="games per player")] = GAMES,
    questions: Annotated[str, typer.Option(help="numbers of questions that the askers ask; 1 always")] = ",".join(
        map(str, QUESTIONS)
    ),
    live: Annotated[
        bool, typer.Option("--live", help="play with the partner behind the endpoint, which costs money")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Play scripted askers and cheats on a config's games, and estimate whether asking raises the reward."""
    settings = load_config(config, overrides or ())
    counts = sorted({1, *(int(word) if word.strip().isdecimal() else 0 for word in questions.split(","))})
    if counts[0] < 1:
        raise ConfigError(f"--questions {questions} is not a list of positive numbers. Write, for example, 1,2,4.")
    with show_status(f"playing {num_games} games per player"):
        incentives = measure(settings, num_games, counts, live=live)
    games = count(num_games, "game")
    table = incentives.table(f"Rewards in {settings.name}, {games} per player, partner {incentives.partner}")
    print_tables([table], [incentives.sentence])
