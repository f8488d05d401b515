"""`slim-rl evaluate`: plays held-out games with given policies, without training, and prints the results with 95% intervals.

Every (policy, partner, mode) is a cell (see `cells`). The cells play the same games with the same partner's seeds, so that they can be compared
in pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer

from slim_rl import provenance
from slim_rl.backends.cost import estimate_cost, held_out_rows, in_words
from slim_rl.commands.cells import CHAT, SCRIPTED, Cell, cell_config, notes, play_cells, scripted_player
from slim_rl.commands.options import (
    Concurrency,
    ConfigFile,
    Engine,
    EngineFlags,
    Human,
    Overrides,
    ServerAddress,
    check_folder,
    game_named,
    words_of,
)
from slim_rl.commands.screen import printable
from slim_rl.config import Config, load_config
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.factory import costs_money
from slim_rl.dialogue.failures import check_measured
from slim_rl.dialogue.measures import shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.errors import ConfigError
from slim_rl.files import write_atomically
from slim_rl.formats import count
from slim_rl.policies import check_model_name
from slim_rl.policies.engines import EngineChoice
from slim_rl.processes import interruptible
from slim_rl.trained import differences, model_of, trained_config

MOST_PAIRS = 8  # of cells that are compared on the screen
GAMES = 200  # a cell, where nothing else is asked for
_FILES = ("table.txt", "cells.csv", "cells.json")


def command(
    config: ConfigFile,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option("--checkpoint", "--model", help="a model or run folder, or hub name (repeatable)"),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="openai:MODEL, a chat model (its endpoint is policy.openai); or a scripted policy of the game, in the "
            "matching game random, solo, ideal, forced:K and greedy:K (repeatable)"
        ),
    ] = None,
    partner: Annotated[
        list[str] | None, typer.Option(help="shy, forthcoming, mute, openai, ...; the config's by default (repeatable)")
    ] = None,
    mode: Annotated[list[str] | None, typer.Option(help="free, forbidden or forced:K (repeatable)")] = None,
    games: Annotated[
        int | None,
        typer.Option(
            "--num-games",
            "--games",
            min=1,
            help=f"held-out games per cell; by default {GAMES}, or all if there are fewer",
        ),
    ] = None,
    num_trials: Annotated[int, typer.Option(min=1, help="dialogues per game; above 1 the table also has pass^k")] = 1,
    success_reward: Annotated[
        float | None,
        typer.Option(
            help="the reward from which a dialogue is a success in pass^k; by default it is one that was agreed"
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "--output-dir", help="folder for the logs and the table")] = Path(
        "logs/evaluation"
    ),
    engine: Engine = "transformers",
    server: ServerAddress = None,
    engine_args: EngineFlags = "",
    concurrency: Concurrency = None,
    human: Human = None,
    overrides: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="list the cells and what they would cost, and stop")
    ] = False,
) -> None:
    """Play held-out games for every (policy, partner, mode), and print a table with intervals.

    Resumable: what is in the logs is not played again.
    """
    settings = load_config(config, overrides or ())
    check_folder(output)
    if success_reward is not None and num_trials < 2:
        raise ConfigError("--success-reward is for pass^k, which takes several dialogues per game: add --num-trials 4.")
    choice = EngineChoice(engine, server, words_of(engine_args))
    checkpoint = [model_of(each, "--checkpoint") for each in checkpoint or ()]
    wanted = (
        Cell(each, kind, name)
        for each in policies(settings, checkpoint, policy or (), choice)
        for kind in partner or [settings.opposite]
        for name in mode or ["free"]
    )
    cells = list(dict.fromkeys(wanted))  # what is named twice is played once
    num_games = check_games(settings, games)
    for name in checkpoint:
        check_model_name(name, "--checkpoint")
        if (trained := trained_config(name)) is not None and (differ := differences(settings, trained)):
            typer.echo(f"{name} is evaluated with other settings: {', '.join(differ)}.")
    if dry_run:
        _say_cost(settings, cells, num_games, num_trials)
    else:
        from slim_rl.analysis.references import reference_lines  # SciPy takes a second

        with interruptible(f"what was played is in {output}, and the same command plays the rest."):
            rows = load_rows(settings, "eval")[:num_games]
            # before anything is played: a file of people's games may be none
            lines = reference_lines([(row.game_state, row.seat) for row in rows], human, settings.environment)
            played = evaluate(settings, cells, output, num_games, choice, concurrency, num_trials)
        _print_results(settings, played, output, len(rows), lines, success_reward)
        check_measured(played)


def policies(config: Config, checkpoints: Sequence[str], named: Sequence[str], engine: EngineChoice) -> list[str]:
    """All policies, as `Cell` names them. Raises ConfigError for none, an unknown one, or more than a server serves."""
    if not checkpoints and not named:
        raise ConfigError(
            "No policy is named: give --checkpoint FOLDER, or --policy openai:MODEL, or --policy random, a scripted one."
        )
    if engine.server and len(checkpoints) > 1:
        raise ConfigError("A server serves one model: give one --checkpoint with --server.")
    for name in named:
        if name == CHAT or not name.startswith(CHAT):
            scripted_player(config, name)
    return [*checkpoints, *(name if name.startswith(CHAT) else SCRIPTED + name for name in named)]


def check_games(config: Config, asked: int | None) -> int:
    """Held-out games a cell. Raises ConfigError where more are asked for than there are."""
    there = held_out_rows(config)
    if asked is not None and asked > there:
        raise ConfigError(
            f"--games {asked} are more than the {there} held-out games of the config: ask for at most {there}, or name another file "
            "in data.eval (data.num_eval says how many it is made with)."
        )
    return asked or min(GAMES, max(there, 1))


def _say_cost(config: Config, cells: Sequence[Cell], num_games: int, num_trials: int) -> None:
    each = f", {num_trials} dialogues each" if num_trials > 1 else ""
    for cell in cells:
        typer.echo(f"{cell.name}: {num_games} games{each}")
    paid = {"partner": (config.partner.openai, sum(costs_money(cell_config(config, cell)) for cell in cells))}
    for cell in cells:
        if cell.chat_model:
            paid[cell.policy] = (cell_config(config, cell).policy.openai, paid.get(cell.policy, (None, 0))[1] + 1)
    for endpoint, number in paid.values():
        if endpoint is not None and number:
            cost = estimate_cost(endpoint, num_games * num_trials * number)
            typer.echo(f"{cost['model']}: {in_words(cost)}")


def _print_results(
    config: Config,
    played: Mapping[str, Sequence[Dialogue]],
    output: Path,
    num_games: int,
    lines: Mapping[str, Any],
    success: float | None,
) -> None:
    """The cells' table and the reference lines, in table.txt and on the screen; their numbers in cells.csv and cells.json. The files first:
    who reads along may leave early. Files of more dialogues of a cell stay as they are.
    """
    from rich.console import Console

    from slim_rl.analysis.terminal_tables import cells_table, compared_sentences
    from slim_rl.lab.gap_tables import ledger_table

    compared = compared_sentences(played)
    said = ["Differences, each a cell minus one named before it:"] if compared else []
    said += compared[:MOST_PAIRS]
    if len(compared) > MOST_PAIRS:
        said.append(
            f"{len(compared) - MOST_PAIRS} more pairs: slim-rl analyze {output}{game_named(config.environment)}"
        )
    said += notes(played)
    for line in lines.values():
        reward = line["reward"]
        said.append(f"{line['about']}: reward {reward['value']:.3f} [{reward['low']:.3f}, {reward['high']:.3f}]")
    price = make_training_reward(config).question_price
    table = cells_table(played, f"{num_games} held-out games", success)
    ledger = ledger_table(played, price)

    def show(target: Console) -> None:
        target.print(table)
        if ledger is not None:
            target.print(ledger)
        for sentence in said:
            target.print(printable(sentence), markup=False, highlight=False)

    console = Console()
    if more := _more_before(output, played):
        show(console)
        kept = f"{', '.join(_FILES)} in {output} stay: they are of {count(more, 'dialogue')} a cell; name another --output for files of these."
        console.print(printable(kept), markup=False, highlight=False)
        return
    text = StringIO()
    show(Console(file=text, width=200))
    write_atomically(output / "table.txt", text.getvalue())
    _write_numbers(config, played, output, lines, success)
    show(console)


def _more_before(output: Path, played: Mapping[str, Sequence[Dialogue]]) -> int:
    """How many dialogues of one of these cells the files in the folder are of, if they are of more than were played now; else 0."""
    import orjson

    try:
        rows = orjson.loads((output / "cells.json").read_bytes())["cells"]
        before = [(row["cell"], int(row["dialogues"])) for row in rows if row["measure"] == "reward"]
    except (OSError, ValueError, LookupError, TypeError):
        return 0
    return max((number for cell, number in before if cell in played and number > len(played[cell])), default=0)


def _write_numbers(
    config: Config,
    played: Mapping[str, Sequence[Dialogue]],
    output: Path,
    lines: Mapping[str, Any],
    success: float | None,
) -> None:
    """A row a cell and measure, those of reports and of the ledger included; in cells.json with what they come from."""
    import orjson
    import pandas as pd

    from slim_rl.analysis.cells import measured_cells, reliability_of_cells
    from slim_rl.lab.gap_tables import ledger_of_cells

    price = make_training_reward(config).question_price
    others = measured_cells(played, [measure for measure in shown_in("report") if "table" not in measure.shown])
    found = (
        *measured_cells(played),
        *reliability_of_cells(played, success),
        *(number for number in others if number.mean.n),
        *ledger_of_cells(played, price),
    )
    rows = [number.as_row() for number in found]
    numbers = {
        "environment": config.environment,
        "game": config.game_settings,
        "question_price": price,
        "seed": config.seed,
        "provenance": provenance.read(output),
        "references": lines,
        "cells": rows,
    }
    write_atomically(output / "cells.csv", pd.DataFrame(rows).to_csv(index=False))
    write_atomically(
        output / "cells.json", orjson.dumps(numbers, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)
    )


def evaluate(
    config: Config,
    cells: Sequence[Cell],
    output: Path,
    num_games: int,
    engine: EngineChoice | None = None,
    concurrency: int | None = None,
    num_trials: int = 1,
) -> dict[str, list[Dialogue]]:
    """Plays every cell on the same held-out games; logs go to `output`/<cell>.jsonl. Resumable.

    Args:
        engine: what samples checkpoints.
        concurrency: dialogues played at once; None: as many as suit the engine.
        num_trials: dialogues a game.

    Raises:
        ConfigError: two cells would share a log, a mode or partner is unknown, or there are no held-out games.
        SlimError: another process evaluates into this folder; a model or server cannot be used, or an endpoint takes no more games; what was played is logged.
    """
    names = [cell.name for cell in cells]
    if len(set(names)) < len(names):
        raise ConfigError("Two cells have the same name; give checkpoints in folders of different names.")
    # what is wrong with one is found before any is played
    configs = {cell: cell_config(config, cell) for cell in cells}
    rows = load_rows(config, "eval")[:num_games]
    if not rows:
        raise ConfigError("The config names no held-out games to evaluate on: set data.eval and data.num_eval.")
    games = dict.fromkeys(cells, rows)
    return play_cells(configs, games, output, engine or EngineChoice(), concurrency, num_trials)
