"""`slim-rl lab incentives`: what a config pays, before anything is trained on it."""

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
from slim_rl.lab.frontier import MOST
from slim_rl.lab.incentives import GAMES, QUESTIONS, as_dict, measure
from slim_rl.lab.incentives.priced import priced, table

_USUAL = ",".join(map(str, QUESTIONS))


def command(
    config: ConfigFile,
    num_games: Annotated[int, typer.Option("--num-games", "--games", min=2, help="games a player")] = GAMES,
    questions: Annotated[str, typer.Option(help="how many questions the askers ask")] = _USUAL,
    live: Annotated[
        bool, typer.Option("--live", help="play with the partner behind the endpoint itself, which costs money")
    ] = False,
    price: Annotated[
        list[float] | None,
        typer.Option(
            min=0, help="compute what askers earn at this price of a question, instead of playing (repeatable)"
        ),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="with --price: the most questions that these askers may ask")] = MOST,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", help="write incentives.json and incentives.png there")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Play scripted askers and cheats over a config's games, and say whether asking pays from the first question."""
    settings = load_config(config, overrides or ())
    counts = sorted({int(word) if word.strip().isdecimal() else 0 for word in questions.split(",")})
    if counts[0] < 1:
        raise ConfigError(f"--questions {questions} is not a list of numbers from 1 on, such as 1,2,4.")
    if price and (live or output_dir is not None or questions != _USUAL):
        raise ConfigError(
            "--price computes what askers earn with as many questions as --most allows, without a partner and without files: leave out --live, "
            "--questions and --output-dir."
        )
    if most != MOST and not price:
        raise ConfigError("--most is for --price: name a price, or leave it out.")
    if output_dir is not None:
        check_folder(output_dir)
    if price:
        askers = priced(settings, num_games, price, most)
        Console().print(table(askers, f"What asking is worth in {settings.name}, {count(num_games, 'game')}"))
        return
    with working(f"playing {num_games} games a player"):
        found = measure(settings, num_games, counts, live=live)
    if output_dir is not None:  # first, for who reads along may leave early
        from slim_rl.lab.incentives.figure import draw

        write_atomically(output_dir / "incentives.json", json.dumps(as_dict(found), indent=1))
        write_atomically(output_dir / "incentives.png", draw(found, settings.name))
    console = Console()
    games = count(num_games, "game")
    console.print(found.table(f"What {settings.name} pays, {games} a player, with {found.partner}"))
    console.print(found.sentence, highlight=False, markup=False)
    if output_dir is not None:
        console.print(f"figure and numbers: {output_dir}", style="dim", markup=False)
