"""`slim-rl lab bench`: plays the benchmark's suites with one model, and writes its file for the leaderboard.

It is `slim-rl evaluate` on deals, partners and prices that are the same for everybody: resumable, and with the same table of asking.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from slim_rl import provenance
from slim_rl.backends.cost import LATER, NOW, estimate_cost, in_words
from slim_rl.commands.cells import CHAT, SCRIPTED, Cell, cell_config, notes, play_cells, scripted_player
from slim_rl.commands.options import (
    Concurrency,
    Engine,
    EngineFlags,
    ServerAddress,
    SuitesFolder,
    check_folder,
    words_of,
)
from slim_rl.commands.screen import printable
from slim_rl.config import Config
from slim_rl.dialogue.failures import check_measured
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError
from slim_rl.formats import count
from slim_rl.lab.bench import file as bench_file
from slim_rl.lab.bench.suites import MAY_CHANGE, Suite, load_suites
from slim_rl.measured import measured
from slim_rl.policies import check_model_name
from slim_rl.policies.engines import EngineChoice
from slim_rl.processes import interruptible
from slim_rl.trained import model_of, settings_of, trained_config


def command(
    model: Annotated[
        str,
        typer.Argument(
            help="a model or run folder, or hub name; openai:NAME, a chat model; or a scripted policy: random, solo, ideal, forced:K, greedy:K",
            show_default=False,
        ),
    ],
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="a suite or its file, such as matching_3x3_free or matching_3x3 (repeatable); all by default"
        ),
    ] = None,
    suites: SuitesFolder = None,
    name: Annotated[str | None, typer.Option(help="name of the result; the model's by default")] = None,
    output: Annotated[Path, typer.Option("--output", "--output-dir", help="folder for results and logs")] = Path(
        "bench"
    ),
    engine: Engine = "transformers",
    server: ServerAddress = None,
    engine_args: EngineFlags = "",
    concurrency: Concurrency = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help=f"a key of {', '.join(MAY_CHANGE)} (repeatable)"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print what would be played and what it costs, and stop")
    ] = False,
) -> None:
    """Play the benchmark's suites with one model, and print where it lost to an ideal asker.

    Resumable: what is in the logs is not played again. The result is one file, which slim-rl lab leaderboard reads.
    """
    choice = EngineChoice(engine, server, words_of(engine_args))
    model = model_of(model, "MODEL")
    wanted = load_suites(suites, suite or (), overrides or ())
    if (trained := trained_config(model)) is not None:
        own = settings_of(trained, {each.config.environment for each in wanted})
        typer.echo(
            f"As {model} was trained: {', '.join(f'{key}={value}' for key, value in own.items()) or 'by the defaults'}."
        )
        said = [f"{key}={json.dumps(value)}" for key, value in own.items()]
        wanted = load_suites(suites, suite or (), [*said, *(overrides or ())])
    policy = policy_of(model, wanted)
    cells = {Cell(policy, each.config.opposite, suite=f"{each.name}-{each.version}"): each for each in wanted}
    configs = {cell: cell_config(each.config, cell) for cell, each in cells.items()}
    title = name or next(iter(cells)).policy_name
    if title != Path(title).name or title == "..":
        raise ConfigError(f"--name {title} becomes a file's name: give one without / that is not '..'.")
    folder = check_folder(output) / title
    for line in _plan(cells, configs):
        typer.echo(line)
    if dry_run:
        return
    with interruptible(f"what was played is in {folder}, and the same command plays the rest."):
        games = {cell: each.rows for cell, each in cells.items()}
        by_cell = play_cells(
            configs, games, folder, choice, concurrency, elsewhere="give this one another name by --name"
        )
    played = {each.name: (each, by_cell[cell.name]) for cell, each in cells.items()}
    path = output / f"{title}{bench_file.SUFFIX}"
    bench_file.write(path, title, played, provenance.read(folder))
    _print(played, path)
    check_measured({name: dialogues for name, (_, dialogues) in played.items()})


def policy_of(model: str, suites: Sequence[Suite]) -> str:
    """The model as `Cell` names it. Raises ConfigError if there is none of that name, or a suite's game has no such scripted policy."""
    if model.startswith(CHAT) and model != CHAT:
        return model
    number = model.partition(":")[2]
    games = [(measured(environment_class(suite.config.environment)), suite.config) for suite in suites]
    counts = [int(number)] if number.isdecimal() else []
    if not Path(model).exists() and any(model in game.baselines(config.game, 0.0, *counts) for game, config in games):
        for suite in suites:
            scripted_player(suite.config, model, "MODEL")
        return SCRIPTED + model
    check_model_name(model, "MODEL")
    return model


def _plan(cells: Mapping[Cell, Suite], configs: Mapping[Cell, Config]) -> list[str]:
    """What is played, and what a chat model would cost."""
    said = [
        f"{suite.name}, version {suite.version}: {count(len(suite.rows), 'game')} at {suite.price:g} a question"
        for suite in cells.values()
    ]
    first = next(iter(cells))
    openai = configs[first].policy.openai
    if first.chat_model and openai.cassette_mode != "replay":
        number = sum(len(suite.rows) for suite in cells.values())
        parts = [f"{in_words(estimate_cost(openai, number, turns))}, at {turns} turns a game" for turns in (NOW, LATER)]
        said.append(f"{openai.model}: {'; '.join(parts)}")
    return said


def _print(played: Mapping[str, tuple[Suite, Sequence[Dialogue]]], path: Path) -> None:
    from rich.console import Console

    from slim_rl.lab.gap_tables import bench_tables

    console = Console()
    found = {name: bench_file.scores(dialogues, suite) for name, (suite, dialogues) in played.items()}
    for table in bench_tables(found, path.name.removesuffix(bench_file.SUFFIX)):
        console.print(table)
    for sentence in notes({name: dialogues for name, (_, dialogues) in played.items()}):
        console.print(printable(sentence), markup=False, highlight=False)
    console.print(str(path), markup=False, highlight=False)
