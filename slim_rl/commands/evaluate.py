"""`slim-rl evaluate`: plays held-out games without training, and prints the results with 95% intervals.

Every (policy, partner, mode) is a cell (see `cells`). Cells play the same games with the same partner seeds, so that differences are
paired by game.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.backends.cost import estimate_cost, held_out_rows, in_words
from slim_rl.commands.cells import CHAT, SCRIPTED, Cell, cell_config, play_cells, scripted_player
from slim_rl.commands.options import (
    Concurrency,
    ConfigFile,
    Engine,
    EngineFlags,
    Human,
    Overrides,
    ServerAddress,
    check_folder,
    split_flags,
)
from slim_rl.config import Config, load_config
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.factory import costs_money
from slim_rl.dialogue.failures import check_measured
from slim_rl.dialogue.record import Dialogue
from slim_rl.errors import ConfigError
from slim_rl.policies import check_model_name
from slim_rl.policies.engines import EngineChoice
from slim_rl.processes import interruptible
from slim_rl.trained import differences, model_of, trained_config

GAMES = 200  # default number of games per cell


def command(
    config: ConfigFile,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option("--checkpoint", "--model", help="model or run folder, or hub name (repeatable)"),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="openai:MODEL for a chat model (its endpoint is policy.openai); or a scripted policy of the game, in the "
            "matching game random, solo, ideal, forced:K and greedy:K (repeatable)"
        ),
    ] = None,
    partner: Annotated[
        list[str] | None,
        typer.Option(help="kind of partner: shy, mute, openai, ...; the config's by default (repeatable)"),
    ] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="mode of play: free, forbidden or forced:K (repeatable)")
    ] = None,
    games: Annotated[
        int | None,
        typer.Option(
            "--num-games",
            "--games",
            min=1,
            help=f"held-out games per cell (default: {GAMES}, or all if there are fewer)",
        ),
    ] = None,
    num_trials: Annotated[int, typer.Option(min=1, help="dialogues per game; above 1 the table has pass^k, too")] = 1,
    success_reward: Annotated[
        float | None,
        typer.Option(help="minimum reward of a success in pass^k; by default every agreement is one"),
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
        bool, typer.Option("--dry-run", help="print the cells and their estimated cost, and stop")
    ] = False,
) -> None:
    """Play held-out games for every (policy, partner, mode), and print a table with intervals.

    Games that are in the logs are not played again.
    """
    settings = load_config(config, overrides or ())
    check_folder(output)
    if success_reward is not None and num_trials < 2:
        raise ConfigError("--success-reward needs several dialogues per game, for pass^k. Add --num-trials 4.")
    choice = EngineChoice(engine, server, split_flags(engine_args))
    checkpoint = [model_of(each, "--checkpoint") for each in checkpoint or ()]
    wanted = (
        Cell(each, kind, name)
        for each in policies(settings, checkpoint, policy or (), choice)
        for kind in partner or [settings.opposite]
        for name in mode or ["free"]
    )
    cells = list(dict.fromkeys(wanted))  # without duplicates
    for cell in cells:
        cell_config(settings, cell)  # an unknown partner is refused before games are dealt
    num_games = check_games(settings, games)
    for name in checkpoint:
        check_model_name(name, "--checkpoint")
        if (trained := trained_config(name)) is not None and (differ := differences(settings, trained)):
            typer.echo(f"{name} is evaluated with other settings: {', '.join(differ)}.")
    if dry_run:
        _print_cost(settings, cells, num_games, num_trials)
    else:
        from slim_rl.analysis.references import reference_lines  # SciPy takes a second
        from slim_rl.commands.evaluation_results import print_results

        with interruptible(f"the dialogues are in {output}, and the same command plays the rest."):
            rows = load_rows(settings, "eval")[:num_games]
            # first, since it raises if --human is not a file of recorded games
            lines = reference_lines([(row.game_state, row.seat) for row in rows], human, settings.environment)
            played = evaluate(settings, cells, output, num_games, choice, concurrency, num_trials)
        print_results(settings, played, output, len(rows), lines, success_reward)
        check_measured(played)


def policies(config: Config, checkpoints: Sequence[str], named: Sequence[str], engine: EngineChoice) -> list[str]:
    """Returns `Cell.policy` of all policies.

    Raises:
        ConfigError: no policy is named, one is unknown, or a server would have to serve several.
    """
    if not checkpoints and not named:
        raise ConfigError(
            "No policy is named. Use --checkpoint FOLDER, --policy openai:MODEL, or a scripted policy such as --policy random."
        )
    if engine.server and len(checkpoints) > 1:
        raise ConfigError("--server serves one model. Name one --checkpoint.")
    for name in named:
        if name == CHAT or not name.startswith(CHAT):
            scripted_player(config, name)
    return [*checkpoints, *(name if name.startswith(CHAT) else SCRIPTED + name for name in named)]


def check_games(config: Config, requested: int | None) -> int:
    """Returns the number of held-out games per cell. Raises ConfigError if more are requested than exist."""
    available = held_out_rows(config)
    if requested is not None and requested > available:
        raise ConfigError(
            f"--games {requested} exceeds the config's {available} held-out games. Request at most {available}, or set data.num_eval and a "
            "new file data.eval."
        )
    return requested or min(GAMES, max(available, 1))


def _print_cost(config: Config, cells: Sequence[Cell], num_games: int, num_trials: int) -> None:
    each = f", {num_trials} dialogues each" if num_trials > 1 else ""
    for cell in cells:
        typer.echo(f"{cell.name}: {num_games} games{each}")
    billed = {"partner": (config.partner.openai, sum(costs_money(cell_config(config, cell)) for cell in cells))}
    for cell in cells:
        if cell.chat_model:
            billed[cell.policy] = (cell_config(config, cell).policy.openai, billed.get(cell.policy, (None, 0))[1] + 1)
    for endpoint, number in billed.values():
        if endpoint is not None and number:
            cost = estimate_cost(endpoint, num_games * num_trials * number)
            typer.echo(f"{cost['model']}: {in_words(cost)}")


def evaluate(
    config: Config,
    cells: Sequence[Cell],
    output: Path,
    num_games: int,
    engine: EngineChoice | None = None,
    concurrency: int | None = None,
    num_trials: int = 1,
) -> dict[str, list[Dialogue]]:
    """Plays every cell on the same held-out games, and logs to `output`/<cell>.jsonl. Logged games are not played again.

    Args:
        engine: engine that samples checkpoints; None: transformers.
        concurrency: maximum number of dialogues at once; None: the engine's default.
        num_trials: dialogues per game.

    Returns:
        The dialogues of each cell, by its name.

    Raises:
        ConfigError: two cells have the same name, a mode or partner is unknown, or there are no held-out games.
        SlimError: another process evaluates into this folder, a model or server cannot be used, or an endpoint stopped
            answering. Dialogues played so far are logged.
    """
    names = [cell.name for cell in cells]
    if len(set(names)) < len(names):
        raise ConfigError("Two cells have the same name. Put checkpoints in folders of different names.")
    configs = {cell: cell_config(config, cell) for cell in cells}  # raises before any cell is played
    rows = load_rows(config, "eval")[:num_games]
    if not rows:
        raise ConfigError("The config has no held-out games. Set data.eval and data.num_eval.")
    games = dict.fromkeys(cells, rows)
    return play_cells(configs, games, output, engine or EngineChoice(), concurrency, num_trials)
