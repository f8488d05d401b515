"""`slim-rl lab incentives`: estimates, before training, whether asking raises the reward under a config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from slim_rl.commands.options import ConfigFile, Overrides, check_folder
from slim_rl.commands.screen import working
from slim_rl.config import load_config
from slim_rl.errors import ConfigError
from slim_rl.files import write_atomically
from slim_rl.formats import count
from slim_rl.frontier import MOST
from slim_rl.lab.incentives import GAMES, QUESTIONS, as_dict, measure
from slim_rl.lab.incentives.question_cost import net_rewards, table

_DEFAULT_QUESTIONS = ",".join(map(str, QUESTIONS))


def command(
    config: ConfigFile,
    num_games: Annotated[int, typer.Option("--num-games", "--games", min=2, help="games per player")] = GAMES,
    questions: Annotated[str, typer.Option(help="numbers of questions that the askers ask")] = _DEFAULT_QUESTIONS,
    live: Annotated[
        bool, typer.Option("--live", help="play with the partner behind the endpoint, which costs money")
    ] = False,
    price: Annotated[
        list[float] | None,
        typer.Option(
            min=0, help="compute the askers' net reward at this question cost, instead of playing (repeatable)"
        ),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="with --price: maximum number of questions per game")] = MOST,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", help="folder for incentives.json and incentives.png")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Play scripted askers and cheats on a config's games, and estimate whether asking raises the reward."""
    settings = load_config(config, overrides or ())
    counts = sorted({int(word) if word.strip().isdecimal() else 0 for word in questions.split(",")})
    if counts[0] < 1:
        raise ConfigError(f"--questions {questions} is not a list of positive numbers. Write, for example, 1,2,4.")
    if price and (live or output_dir is not None or questions != _DEFAULT_QUESTIONS):
        raise ConfigError("--price plays no games and writes no files. Leave out --live, --questions and --output-dir.")
    if most != MOST and not price:
        raise ConfigError("--most needs --price. Name a question cost, or leave --most out.")
    if output_dir is not None:
        check_folder(output_dir)
    if price:
        askers = net_rewards(settings, num_games, price, most)
        Console().print(table(askers, f"Net reward of simulated askers in {settings.name}, {count(num_games, 'game')}"))
        return
    with working(f"playing {num_games} games per player"):
        incentives = measure(settings, num_games, counts, live=live)
    if output_dir is not None:  # files first: printing fails if the reader of a pipe has gone
        from slim_rl.lab.incentives.figure import draw

        write_atomically(output_dir / "incentives.json", json.dumps(as_dict(incentives), indent=1))
        write_atomically(output_dir / "incentives.png", draw(incentives, settings.name))
    console = Console()
    games = count(num_games, "game")
    console.print(incentives.table(f"Rewards in {settings.name}, {games} per player, partner {incentives.partner}"))
    console.print(incentives.sentence, highlight=False, markup=False)
    if output_dir is not None:
        console.print(f"figure and numbers: {output_dir}", style="dim", markup=False)
