"""`slim-rl evaluate`: plays held-out games with given policies, without training, and prints the results with 95% intervals.

Every (checkpoint, partner, mode) is a cell with a log of its own, and resumable. The cells play the same games with the same
partner's seeds, so that they can be compared in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import ConfigFile, Human, Overrides, check_folder
from slim_rl.commands.screen import printable, working
from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.held_out import SCOPE, play_held_out
from slim_rl.dialogue.policy import Policy
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.worker import Episode, RolloutWorker
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError
from slim_rl.policies.interventions import AskFirst, NeverAsk
from slim_rl.seeds import seed_of

MOST_PAIRS = 8  # of cells that are compared on the screen


def command(
    config: ConfigFile,
    checkpoint: Annotated[
        list[str], typer.Option("--checkpoint", "--model", help="a model folder or hub name (repeatable)")
    ],
    partner: Annotated[
        list[str] | None, typer.Option(help="shy, forthcoming, mute, openai, ...; the config's by default (repeatable)")
    ] = None,
    mode: Annotated[list[str] | None, typer.Option(help="free, forbidden or forced:K (repeatable)")] = None,
    num_games: Annotated[int, typer.Option("--num-games", "--games", min=1, help="held-out games a cell")] = 200,
    output: Annotated[Path, typer.Option("--output", "--output-dir", help="folder for the logs and the table")] = Path(
        "logs/evaluation"
    ),
    human: Human = None,
    overrides: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="list the cells and what they would cost, and stop")
    ] = False,
) -> None:
    """Play held-out games for every (checkpoint, partner, mode), and print a table with intervals.

    Resumable: what is in the logs is not played again.
    """
    settings = load_config(config, overrides or ())
    check_folder(output)
    cells = [
        Cell(each, kind, name)
        for each in checkpoint
        for kind in partner or [settings.partner.kind]
        for name in mode or ["free"]
    ]
    if dry_run:
        _say_cost(settings, cells, num_games)
    else:
        _print_results(settings, evaluate(settings, cells, output, num_games), output, num_games, human)


def _say_cost(config: Config, cells: Sequence[Cell], num_games: int) -> None:
    for cell in cells:
        typer.echo(f"{cell.name}: {num_games} games")
    if paid := sum(cell.partner == "openai" for cell in cells):
        from slim_rl.partners.spend import estimate_cost

        cost = estimate_cost(config.partner.openai, num_games * paid)
        price = "at an unknown price" if cost["usd"] is None else f"about ${cost['usd']:.2f}"
        typer.echo(f"{cost['model']}: {cost['calls']} calls, {price}")


def _print_results(
    config: Config, played: Mapping[str, Sequence[Dialogue]], output: Path, num_games: int, human: Path | None
) -> None:
    """The cells' table and the reference lines, on the screen and in table.txt."""
    from rich.console import Console

    from slim_rl.analysis.references import reference_lines
    from slim_rl.analysis.terminal_tables import cells_table, compared_sentences

    games = [(row.game_state, row.seat) for row in load_rows(config, "eval")[:num_games]]
    lines = reference_lines(games, human, config.environment)
    compared = compared_sentences(played)
    with (output / "table.txt").open("w", encoding="utf-8") as file:
        for target in (Console(), Console(file=file, width=200)):
            target.print(cells_table(played, f"{len(games)} held-out games"))
            for sentence in compared[:MOST_PAIRS]:
                target.print(printable(sentence), markup=False, highlight=False)
            if len(compared) > MOST_PAIRS:
                target.print(f"{len(compared) - MOST_PAIRS} more pairs: slim-rl analyze {output}", markup=False)
            for line in lines.values():
                reward = line["reward"]
                about = printable(
                    f"{line['about']}: reward {reward['value']:.3f} [{reward['low']:.3f}, {reward['high']:.3f}]"
                )
                target.print(about, markup=False)


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy against one partner. `mode`: "free", "forbidden" (it may not ask) or "forced:K" (K questions are asked for it)."""

    checkpoint: str
    partner: str
    mode: str = "free"

    @property
    def name(self) -> str:
        path = Path(self.checkpoint)
        policy = path.parent.name if path.name == "model" else path.name
        return "_".join((policy, self.partner, self.mode.replace(":", "")))


def evaluate(config: Config, cells: Sequence[Cell], output: Path, num_games: int) -> dict[str, list[Dialogue]]:
    """Plays every cell on the same held-out games; logs go to `output`/<cell>.jsonl. Resumable.

    Raises:
        ConfigError: two cells would share a log, a mode or partner is unknown, or there are no held-out games.
    """
    names = [cell.name for cell in cells]
    if len(set(names)) < len(names):
        raise ConfigError("Two cells have the same name; give checkpoints in folders of different names.")
    configs = [_config(config, cell) for cell in cells]  # what is wrong with one is found before any is played
    if not load_rows(config, "eval"):
        raise ConfigError("The config names no held-out games to evaluate on: set data.eval and data.num_eval.")
    return {
        cell.name: _play_cell(changed, cell, output / f"{cell.name}.jsonl", num_games)
        for cell, changed in zip(cells, configs, strict=True)
    }


def _config(config: Config, cell: Cell) -> Config:
    data = config.model_dump()
    data |= {"name": cell.name, "arm": cell.name}
    data["partner"] |= {"kind": cell.partner}
    data["policy"] |= {"model": cell.checkpoint}
    parse_mode(cell.mode)
    return parse_config(data, source=f"the cell {cell.name}")


def _play_cell(config: Config, cell: Cell, log: Path, num_games: int) -> list[Dialogue]:
    with working(f"loading {cell.checkpoint}"):
        from slim_rl.policies.transformers import load_policy

        policy, chat = load_policy(config.policy)
    policy.reseed(seed_of(config.seed, SCOPE))
    worker = RolloutWorker(config, chat, policy)
    worker.keep_spend(log.parent)
    rows = load_rows(config, "eval")[:num_games]
    return play_held_out(worker, rows, log, step=0, policy=intervention(config, cell.mode, policy, chat))


def parse_mode(mode: str) -> tuple[str, int]:
    """The name of a mode and its number of forced questions. Raises ConfigError for an unknown one."""
    name, _, number = mode.partition(":")
    if (name in ("free", "forbidden") and not number) or (name == "forced" and number.isdigit()):
        return name, int(number or 0)
    raise ConfigError(f"There is no mode '{mode}': use free, forbidden or forced:K, for example forced:2.")


def intervention(config: Config, mode: str, policy: Policy, chat: Chat) -> Callable[[Episode], Policy] | None:
    """What gives each episode the policy of a mode; None for free play."""
    name, number = parse_mode(mode)
    game = environment_class(config.environment)
    if name == "free":
        return None
    if name == "forbidden":
        return lambda episode: NeverAsk(policy, chat, game.asks)

    def ask_first(episode: Episode) -> Policy:
        row = episode.row
        return AskFirst(policy, chat, game.questions_worth_asking(row.game_state, row.seat, number, episode.seed))

    return ask_first
