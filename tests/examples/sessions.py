"""Sessions with an example: a config with its files in one folder, a dialogue of given turns, a person at the keyboard, and a whole run."""

import asyncio
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from slim_rl.analysis import Summary, analyze
from slim_rl.commands.cells import Cell, evaluate
from slim_rl.commands.play import play
from slim_rl.config import Config, load_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import make_environment
from tests.dialogue.players import Script
from tests.paths import ROOT

LONG = {"turn_tokens": 256, "dialogue_tokens": 4096}  # an example's own limits are a tiny model's


def config_in(folder: Path, example: str | Path, *overrides: str) -> Config:
    """`examples`/<example>.yaml, or a config by its path, writing below `folder`."""
    places = {"data.train": "train.jsonl", "data.eval": "eval.jsonl", "output_dir": "runs"}
    settings = [f"{key}={folder / place}" for key, place in places.items()]
    model = f"policy.model={folder / 'model'}"
    path = example if isinstance(example, Path) else ROOT / "examples" / f"{example}.yaml"
    return load_config(path, [*settings, model, "data.num_train=12", "data.num_eval=5", *overrides])


def said(
    config: Config, tokenizer: Any, turns: Sequence[str], state: Any, seat: int = 0, partner: Partner | None = None
) -> Dialogue:
    """The annotated dialogue of a policy that says these turns; of self-play that of seat 0."""
    chat = Chat(tokenizer)
    worker = RolloutWorker(config.changed(limits=LONG), chat, Script(chat, list(turns)), partner=partner)
    row = GameRow.of(make_environment(worker.config), "g", state, seat)
    dialogue, *_ = asyncio.run(worker.play(worker.spec(row, "test")))
    annotate(dialogue)
    return dialogue


def played_by_hand(config: Config, lines: Iterable[str], game: int = 0) -> tuple[float, str]:
    """The reward of somebody who types these lines in a held-out game, and the screen."""
    screen, typed = io.StringIO(), iter(lines)

    def ask(_: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    return play(config, game=game, console=Console(file=screen, width=100), ask=ask), screen.getvalue()


def whole_run(config: Config, folder: Path, partner: str, games: int) -> tuple[Any, dict[str, list[Dialogue]], Summary]:
    """Trains, evaluates free, without questions and with a forced one, and reports: the result, dialogues by mode, and the report."""
    from slim_rl.backends.trl.run import train

    result, modes = train(config), ("free", "forbidden", "forced:1")
    cells = [Cell(str(result.run_dir / "model"), partner, mode) for mode in modes]
    played = dict(zip(modes, evaluate(config, cells, folder / "cells", games).values(), strict=True))
    assert [len(dialogues) for dialogues in played.values()] == [games] * 3
    assert not any(turn.pairs or turn.seeking for each in played["forbidden"] for turn in each.turns)
    assert all(each.turns[0].pairs and each.turns[0].answered for each in played["forced:1"])
    summary = analyze([result.log_dir, folder / "cells"], folder / "plots")
    assert summary.report.stat().st_size > 10_000
    counts = config.train.steps * config.train.dialogues + 2 * config.train.eval_games + 3 * games
    assert summary.results["counts"]["dialogues"] == counts
    return result, played, summary
