"""`slim-rl lab bench`: plays the benchmark's suites with one model, and writes its result file for the leaderboard.

It is `slim-rl evaluate` with fixed games, partners and question costs. It can be resumed.
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
    split_flags,
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
            help="model or run folder, hub name, openai:NAME for a chat model, or a scripted policy: random, solo, ideal, forced:K, greedy:K",
            show_default=False,
        ),
    ],
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="suite or file of suites, such as matching_3x3_free or matching_3x3 (repeatable); all by default"
        ),
    ] = None,
    suites: SuitesFolder = None,
    name: Annotated[str | None, typer.Option(help="name of the result; the model's name by default")] = None,
    output: Annotated[Path, typer.Option("--output", "--output-dir", help="folder for results and logs")] = Path(
        "bench"
    ),
    engine: Engine = "transformers",
    server: ServerAddress = None,
    engine_args: EngineFlags = "",
    concurrency: Concurrency = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help=f"override a key of {', '.join(MAY_CHANGE)} (repeatable)"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the suites and the estimated cost, and stop")
    ] = False,
) -> None:
    """Play the benchmark's suites with one model, and print its gap to an ideal asker.

    Games that are in the logs are not played again. Writes one result file, which slim-rl lab leaderboard reads.
    """
    choice = EngineChoice(engine, server, split_flags(engine_args))
    model = model_of(model, "MODEL")
    wanted = load_suites(suites, suite or (), overrides or ())
    if (trained := trained_config(model)) is not None:
        settings = settings_of(trained, {each.config.environment for each in wanted})
        typer.echo(
            f"Settings that {model} was trained with: {', '.join(f'{key}={value}' for key, value in settings.items()) or 'the defaults'}."
        )
        changes = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        wanted = load_suites(suites, suite or (), [*changes, *(overrides or ())])
    policy = policy_of(model, wanted)
    cells = {Cell(policy, each.config.opposite, suite=f"{each.name}-{each.version}"): each for each in wanted}
    configs = {cell: cell_config(each.config, cell) for cell, each in cells.items()}
    title = name or next(iter(cells)).policy_name
    if title != Path(title).name or title == "..":
        raise ConfigError(f"--name {title} is not a file name. Choose a name without /, other than '..'.")
    folder = check_folder(output) / title
    for line in _plan(cells, configs):
        typer.echo(line)
    if dry_run:
        return
    with interruptible(f"the dialogues are in {folder}, and the same command plays the rest."):
        games = {cell: each.rows for cell, each in cells.items()}
        by_cell = play_cells(configs, games, folder, choice, concurrency, elsewhere="choose another --name")
    played = {each.name: (each, by_cell[cell.name]) for cell, each in cells.items()}
    path = output / f"{title}{bench_file.SUFFIX}"
    bench_file.write(path, title, played, provenance.read(folder))
    _print(played, path)
    check_measured({name: dialogues for name, (_, dialogues) in played.items()})


def policy_of(model: str, suites: Sequence[Suite]) -> str:
    """Returns `Cell.policy` of a model. Raises ConfigError for an unknown model or scripted policy."""
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
    """Returns one line per suite, and one on the estimated cost of a chat model."""
    lines = [
        f"{suite.name}, version {suite.version}: {count(len(suite.rows), 'game')}, question cost {suite.price:g}"
        for suite in cells.values()
    ]
    first = next(iter(cells))
    openai = configs[first].policy.openai
    if first.chat_model and openai.cassette_mode != "replay":
        number = sum(len(suite.rows) for suite in cells.values())
        parts = [
            f"{in_words(estimate_cost(openai, number, turns))}, at {turns} turns per game" for turns in (NOW, LATER)
        ]
        lines.append(f"{openai.model}: {'; '.join(parts)}")
    return lines


def _print(played: Mapping[str, tuple[Suite, Sequence[Dialogue]]], path: Path) -> None:
    from rich.console import Console

    from slim_rl.lab.gap_tables import bench_tables

    console = Console()
    scores = {name: bench_file.scores(dialogues, suite) for name, (suite, dialogues) in played.items()}
    for table in bench_tables(scores, path.name.removesuffix(bench_file.SUFFIX)):
        console.print(table)
    for sentence in notes({name: dialogues for name, (_, dialogues) in played.items()}):
        console.print(printable(sentence), markup=False, highlight=False)
    console.print(str(path), markup=False, highlight=False)
