"""`slim-rl evaluate`: plays held-out games with given policies, without training, and prints the results with 95% intervals.

Every (policy, partner, mode) is a cell with its own log, and resumable. The cells play the same games with the same
partner's seeds, so that they can be compared in pairs. A policy is a checkpoint, a chat model that plays by text, or one of the game's
scripted policies.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from slim_rl import provenance
from slim_rl.backends.cost import estimate_cost, held_out_rows
from slim_rl.commands.options import ConfigFile, Human, Overrides, check_folder
from slim_rl.commands.screen import printable, working
from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.failures import Failures
from slim_rl.dialogue.held_out import SCOPE, play_held_out
from slim_rl.dialogue.loop import Player, Speaker
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import Episode, RolloutWorker
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError, did_you_mean
from slim_rl.files import write_atomically
from slim_rl.measured import measured
from slim_rl.policies import check_model_name
from slim_rl.policies.engines import EngineChoice, ReadyPolicy, ready_policy
from slim_rl.policies.interventions import AskFirst, NeverAsk
from slim_rl.policies.openai_chat import ChatPolicy
from slim_rl.processes import interruptible
from slim_rl.runs import one_at_a_time
from slim_rl.seeds import seed_of

MOST_PAIRS = 8  # of cells that are compared on the screen
GAMES = 200  # a cell, where nothing else is asked for
CHAT, SCRIPTED = "openai:", "scripted:"  # before the name of a chat model, and of one of the game's scripted policies


def command(
    config: ConfigFile,
    checkpoint: Annotated[
        list[str] | None, typer.Option("--checkpoint", "--model", help="a model folder or hub name (repeatable)")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="openai:MODEL, a chat model that plays by text, its endpoint is policy.openai; or a scripted policy of the game, of the "
            "matching game random, solo, ideal, forced:K and greedy:K (repeatable)"
        ),
    ] = None,
    partner: Annotated[
        list[str] | None, typer.Option(help="shy, forthcoming, mute, openai, ...; the config's by default (repeatable)")
    ] = None,
    mode: Annotated[list[str] | None, typer.Option(help="free, forbidden or forced:K (repeatable)")] = None,
    games: Annotated[
        int | None,
        typer.Option("--num-games", "--games", min=1, help=f"held-out games a cell; {GAMES}, or all, by default"),
    ] = None,
    num_trials: Annotated[int, typer.Option(min=1, help="dialogues a game: how steady a policy is")] = 1,
    output: Annotated[Path, typer.Option("--output", "--output-dir", help="folder for the logs and the table")] = Path(
        "logs/evaluation"
    ),
    engine: Annotated[
        str, typer.Option(help="what samples a checkpoint: transformers (in this process), sglang or vllm (a server)")
    ] = "transformers",
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="URL of a running server; without it one is started")
    ] = None,
    engine_args: Annotated[
        str, typer.Option("--engine-args", help="further flags for the server that is started, such as '--tp 2'")
    ] = "",
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="dialogues played at once (1000 before a server, else all)")
    ] = None,
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
    choice = EngineChoice(engine, server, shlex.split(engine_args))
    cells = [
        Cell(each, kind, name)
        for each in policies(settings, checkpoint or (), policy or (), choice)
        for kind in partner or [settings.partner.kind]
        for name in mode or ["free"]
    ]
    num_games = check_games(settings, games)
    for name in checkpoint or ():
        check_model_name(name, "--checkpoint")
    if dry_run:
        _say_cost(settings, cells, num_games, num_trials)
    else:
        with interruptible(f"what was played is in {output}, and the same command plays the rest."):
            played = evaluate(settings, cells, output, num_games, choice, concurrency, num_trials)
        _print_results(settings, played, output, num_games, human)


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


def scripted_player(config: Config, name: str, given: str = "--policy") -> Any:
    """The game's scripted policy of that name, at the config's price a question, or the mean of several. `given`: what named it.

    Raises:
        ConfigError: it has none of that name.
    """
    number = name.partition(":")[2]
    game = environment_class(config.environment)
    price = float(np.mean(config.train.question_price))
    known = measured(game).baselines(config.game, price, *([int(number)] if number.isdecimal() else []))
    if name in known:
        return known[name]
    wrong = f"{given} {name} is not openai:MODEL"
    if not known:
        raise ConfigError(
            f"{wrong}, and {game.__name__} has no scripted policies: name a chat model, or give a checkpoint."
        )
    raise ConfigError(
        f"{wrong}, nor a scripted policy of {game.__name__}, which are {', '.join(known)}; a checkpoint is given by --checkpoint"
        f"{did_you_mean(name, known) or '.'}"
    )


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
    paid = {"partner": (config.partner.openai, sum(cell.partner == "openai" for cell in cells))}
    for cell in cells:
        if cell.chat_model:
            paid[cell.policy] = (cell_config(config, cell).policy.openai, paid.get(cell.policy, (None, 0))[1] + 1)
    for endpoint, number in paid.values():
        if endpoint is not None and number:
            cost = estimate_cost(endpoint, num_games * num_trials * number)
            price = "at an unknown price" if cost["usd"] is None else f"about ${cost['usd']:.2f}"
            typer.echo(f"{cost['model']}: {cost['calls']} calls, {price}")


def _print_results(
    config: Config, played: Mapping[str, Sequence[Dialogue]], output: Path, num_games: int, human: Path | None
) -> None:
    """The cells' table and the reference lines, on the screen and in table.txt; their numbers in cells.csv and cells.json."""
    from rich.console import Console

    from slim_rl.analysis.references import reference_lines
    from slim_rl.analysis.terminal_tables import cells_table, compared_sentences, ledger_table

    games = [(row.game_state, row.seat) for row in load_rows(config, "eval")[:num_games]]
    lines = reference_lines(games, human, config.environment)
    compared = compared_sentences(played)
    said = ["Differences, each a cell minus one named before it:"] if compared else []
    said += compared[:MOST_PAIRS]
    if len(compared) > MOST_PAIRS:
        said.append(f"{len(compared) - MOST_PAIRS} more pairs: slim-rl analyze {output}")
    said += notes(played)
    for line in lines.values():
        reward = line["reward"]
        said.append(f"{line['about']}: reward {reward['value']:.3f} [{reward['low']:.3f}, {reward['high']:.3f}]")
    price = config.train.question_price
    table = cells_table(played, f"{len(games)} held-out games")
    ledger = ledger_table(played, price)
    text = StringIO()
    for target in (Console(), Console(file=text, width=200)):
        target.print(table)
        if ledger is not None:
            target.print(ledger)
        for sentence in said:
            target.print(printable(sentence), markup=False, highlight=False)
    write_atomically(output / "table.txt", text.getvalue())
    _write_numbers(config, played, output, lines)


def _write_numbers(
    config: Config, played: Mapping[str, Sequence[Dialogue]], output: Path, lines: Mapping[str, Any]
) -> None:
    """A row a cell and measure, the ledger's included; in cells.json with what they come from."""
    import orjson
    import pandas as pd

    from slim_rl.analysis.cells import ledger_of_cells, measured_cells

    price = config.train.question_price
    rows = [number.as_row() for number in (*measured_cells(played), *ledger_of_cells(played, price))]
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


def notes(played: Mapping[str, Sequence[Dialogue]]) -> Iterator[str]:
    """What a table of means does not show: dialogues that failed, and what the policies' own calls cost."""
    for name, dialogues in played.items():
        ended = Failures(dialogues)
        if ended.reasons:
            reasons = ", ".join(f"{reason} {count}" for reason, count in ended.reasons.most_common())
            yield f"{name}: {ended.reasons.total()} of {len(dialogues)} dialogues failed ({reasons}); the same command plays them again."
        usages = [turn.usage for d in dialogues for turn in d.turns if turn.role == "policy" and turn.usage]
        if usages:
            calls, cost = (sum(usage.get(key) or 0 for usage in usages) for key in ("calls", "cost_usd"))
            yield f"{name}: {calls:,} calls of the policy" + (f", ${cost:.2f}" if cost else "")


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy against one partner.

    Attributes:
        policy: a model folder, a hub name, openai:MODEL, or scripted:NAME.
        mode: "free", "forbidden" (it may not ask) or "forced:K" (K questions are asked for it).
        suite: the benchmark's suite that it plays, if it plays one.
    """

    policy: str
    partner: str
    mode: str = "free"
    suite: str = ""

    @property
    def chat_model(self) -> str:
        """The chat model that plays by text; "" for any other policy."""
        return self.policy.removeprefix(CHAT) if self.policy.startswith(CHAT) else ""

    @property
    def scripted(self) -> str:
        """The game's scripted policy; "" for any other."""
        return self.policy.removeprefix(SCRIPTED) if self.policy.startswith(SCRIPTED) else ""

    @property
    def policy_name(self) -> str:
        path = Path(self.chat_model.replace("/", "-") or self.scripted.replace(":", "") or self.policy)
        return path.parent.name if path.name == "model" else path.name

    @property
    def name(self) -> str:
        return "_".join((self.suite or self.policy_name, self.partner, self.mode.replace(":", "")))


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
    configs = {
        cell: cell_config(config, cell) for cell in cells
    }  # what is wrong with one is found before any is played
    rows = load_rows(config, "eval")[:num_games]
    if not rows:
        raise ConfigError("The config names no held-out games to evaluate on: set data.eval and data.num_eval.")
    games = dict.fromkeys(cells, rows)
    return play_cells(configs, games, output, engine or EngineChoice(), concurrency, num_trials)


def play_cells(
    configs: Mapping[Cell, Config],
    games: Mapping[Cell, Sequence[GameRow]],
    output: Path,
    engine: EngineChoice,
    concurrency: int | None = None,
    num_trials: int = 1,
) -> dict[str, list[Dialogue]]:
    """Plays each cell by its own config (`cell_config`) on its own games: see `evaluate`."""
    cells = list(configs)
    results: dict[str, list[Dialogue]] = {}
    with one_at_a_time(output, "evaluation"):
        # a model is loaded, and a server started, once; a scripted policy is made for each config
        for player in dict.fromkeys(map(_player, cells)):
            first, *_ = own = [cell for cell in cells if _player(cell) == player]
            with _ready(configs[first], first, engine, output / f"{first.name}.server.log") as ready:
                for cell in own:
                    config = configs[cell]
                    ready.reseed(seed_of(config.seed, SCOPE))
                    limits = config.limits.within(context_tokens=(ready.context,))
                    worker = RolloutWorker(config.changed(limits=limits), ready.chat, ready.policy)
                    worker.keep_spend(output)
                    results[cell.name] = play_held_out(
                        worker,
                        games[cell],
                        output / f"{cell.name}.jsonl",
                        step=None,
                        trials=num_trials,
                        policy=intervention(config, cell.mode, ready.policy, ready.chat),
                        max_live=concurrency or engine.at_once,
                    )
    return {cell.name: results[cell.name] for cell in cells}


def _player(cell: Cell) -> tuple[str, str]:
    """What the cells that one policy plays, as it is made, have in common."""
    return cell.policy, cell.suite if cell.scripted else ""


def cell_config(config: Config, cell: Cell) -> Config:
    """The config that a cell is played by. Raises ConfigError for a partner or mode that it cannot have."""
    if cell.partner == "self" and (cell.chat_model or cell.scripted):
        raise ConfigError(
            "partner self needs a policy with tokens, which a chat model and a scripted policy do not have; name another partner."
        )
    parse_mode(cell.mode)
    policy: dict[str, Any] = {} if cell.scripted else {"model": cell.policy}
    if cell.chat_model:
        policy = {"openai": {"model": cell.chat_model}}
    changed = config.changed(name=cell.name, arm=cell.name, partner={"kind": cell.partner}, policy=policy)
    return parse_config(changed.model_dump(), source=f"the cell {cell.name}")


@contextmanager
def _ready(config: Config, cell: Cell, engine: EngineChoice, log: Path) -> Iterator[ReadyPolicy]:
    if cell.chat_model or cell.scripted:
        player = ChatPolicy(config.policy.openai) if cell.chat_model else scripted_player(config, cell.scripted)
        yield ReadyPolicy(Speaker(player))
        return
    with ExitStack() as stack:
        with working(f"loading {cell.policy}"):
            ready = stack.enter_context(ready_policy(config, engine, log))
        yield ready


def parse_mode(mode: str) -> tuple[str, int]:
    """The name of a mode and its number of forced questions. Raises ConfigError for an unknown one."""
    name, _, number = mode.partition(":")
    if (name in ("free", "forbidden") and not number) or (name == "forced" and number.isdigit()):
        return name, int(number or 0)
    raise ConfigError(f"There is no mode '{mode}': use free, forbidden or forced:K, for example forced:2.")


def intervention(config: Config, mode: str, policy: Player, chat: Chat | None) -> Callable[[Episode], Player] | None:
    """What gives each episode the policy of a mode; None for free play."""
    name, number = parse_mode(mode)
    if name == "free":
        return None
    game = measured(environment_class(config.environment))
    base: Any = policy.player if isinstance(policy, Speaker) else policy

    def player(episode: Episode) -> Player:
        if name == "forbidden":
            changed: Any = NeverAsk(base, chat, game.asks)
        else:
            row = episode.row
            questions = game.questions_worth_asking(row.game_state, row.seat, number, episode.seed)
            changed = AskFirst(base, chat, questions)
        return changed if base is policy else Speaker(changed)

    return player
