"""`slim-rl evaluate`: plays held-out games without training, and prints what the report says of them.

Every (policy, partner, mode) is a cell (see `cells`). Cells play the same games with the same partner seeds, so that differences are
paired by game.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.backends.cost import estimate_cost, paid_of
from slim_rl.commands.cells import CHAT, SCRIPTED, Cell, cell_config, evaluate, notes, scripted_player
from slim_rl.commands.options import ConfigFile, Human, Overrides, Strings, check_folder
from slim_rl.commands.screen import print_answer, printable
from slim_rl.config import Config, load_config
from slim_rl.dialogue.failures import nothing_measured
from slim_rl.dialogue.games_file import games_files, read_rows
from slim_rl.errors import ConfigError, SlimError
from slim_rl.policies import check_model_name, model_of
from slim_rl.policies.engines import check_engine
from slim_rl.processes import interruptible

GAMES, LOGS = 200, Path("logs/evaluation")  # default number of games per cell, and folder


def command(
    config: ConfigFile,
    checkpoint: Annotated[
        Strings, typer.Option("--checkpoint", "--model", help="model or run folder, or hub name (repeatable)")
    ] = None,
    policy: Annotated[
        Strings,
        typer.Option(
            help="openai:MODEL for a chat model (its endpoint is policy.openai); or a scripted policy of the game, in the "
            "matching game random, solo, ideal, forced:K and greedy:K (repeatable)"
        ),
    ] = None,
    partner: Annotated[
        Strings, typer.Option(help="kind of partner, or a member of the mixture; the config's by default (repeatable)")
    ] = None,
    mode: Annotated[Strings, typer.Option(help="free, forbidden or forced:K questions (repeatable)")] = None,
    games: Annotated[int, typer.Option("--num-games", "--games", min=1, help="held-out games per cell")] = GAMES,
    num_trials: Annotated[int, typer.Option(min=1, help="dialogues per game")] = 1,
    output: Annotated[Path, typer.Option("--output", "--output-dir", help="folder for the logs")] = LOGS,
    engine: Annotated[
        str, typer.Option(help="what samples a checkpoint: transformers (in this process), or a server: sglang or vllm")
    ] = "transformers",
    server: Annotated[str | None, typer.Option(metavar="URL", help="running server of sglang or vllm")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="dialogues at once (default: 1000 with a server, else all)")
    ] = None,
    human: Human = None,
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the cells and their cost, and stop")] = False,
) -> None:
    """Play held-out games for every (policy, partner, mode), and print a table with intervals.

    Games that are in the logs are not played again. `slim-rl analyze` makes a report of the logs.
    """
    settings = load_config(config, overrides or ())
    check_folder(output)
    check_engine(engine, server)
    if not checkpoint and not policy and config.is_dir():  # a run's own model
        checkpoint = [str(config)]
    checkpoint = [model_of(each, "--checkpoint") for each in checkpoint or ()]
    wanted = (
        Cell(each, kind, name)
        for each in policies(settings, checkpoint, policy or (), server)
        for kind in partner or [settings.opposite.name]
        for name in mode or ["free"]
    )
    # an unknown partner is refused before games are dealt
    configs = {cell: cell_config(settings, cell) for cell in dict.fromkeys(wanted)}
    for name in checkpoint:
        check_model_name(name, "--checkpoint")
    if dry_run:
        file, number = games_files(settings).get("eval", (Path(), 0))
        games = min(games, len(read_rows(file)) if file.is_file() else number)
        each = f", {num_trials} dialogues each" if num_trials > 1 else ""
        for cell, its in configs.items():
            typer.echo("; ".join([f"{cell.name}: {games} games{each}", *cost_of(cell, its, games * num_trials)]))
        return
    with interruptible(f"the dialogues are in {output}, and the same command plays the rest."):
        played = evaluate(settings, list(configs), output, games, engine, server, concurrency, num_trials)
    print_answer([dialogue for dialogues in played.values() for dialogue in dialogues], human)
    for sentence in notes(played):
        typer.echo(printable(sentence))
    if sentence := nothing_measured(played):
        raise SlimError(sentence)


def policies(config: Config, checkpoints: Sequence[str], named: Sequence[str], server: str | None) -> list[str]:
    """Returns `Cell.policy` of all policies.

    Raises:
        ConfigError: no policy is named, one is unknown, or a server would have to serve several.
    """
    if not checkpoints and not named:
        raise ConfigError(
            "No policy is named. Use --checkpoint FOLDER, --policy openai:MODEL, or a scripted policy such as --policy random."
        )
    if server and len(checkpoints) > 1:
        raise ConfigError("--server serves one model. Name one --checkpoint.")
    for name in named:
        if name == CHAT or not name.startswith(CHAT):
            scripted_player(config, name)
    return [*checkpoints, *(name if name.startswith(CHAT) else SCRIPTED + name for name in named)]


def cost_of(cell: Cell, config: Config, dialogues: int) -> Iterator[str]:
    """Yields the estimated cost of a cell's endpoints."""
    for name, number, endpoint in paid_of(config, dialogues):
        yield f"{name}: {estimate_cost(endpoint, number)}"
    if cell.chat_model:
        yield f"policy: {estimate_cost(config.policy.openai, dialogues)}"
