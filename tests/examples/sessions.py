"""A config of an example with its files in one folder, and a person at the keyboard."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from slim_rl.commands.play import play
from slim_rl.config import Config, load_config
from tests.paths import ROOT


def config_in(folder: Path, example: str, *overrides: str) -> Config:
    """`examples`/<example>.yaml, writing below `folder`."""
    places = {"data.train": "train.jsonl", "data.eval": "eval.jsonl", "output_dir": "runs"}
    settings = [f"{key}={folder / place}" for key, place in places.items()]
    model = f"policy.model={folder / 'model'}"
    return load_config(
        ROOT / "examples" / f"{example}.yaml", [*settings, model, "data.num_train=12", "data.num_eval=5", *overrides]
    )


def played_by_hand(config: Config, lines: Iterable[str], game: int = 0) -> tuple[float, str]:
    """The reward of somebody who types these lines in a held-out game, and the screen."""
    screen, typed = io.StringIO(), iter(lines)

    def ask(_: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    return play(config, game=game, console=Console(file=screen, width=100), ask=ask), screen.getvalue()
