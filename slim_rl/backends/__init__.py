"""Adapters to trainers, one folder each: `trl` for one machine, `slime` and `verl` for clusters.

    backends/NAME/launch.py   `start(request)` trains, or launches the trainer; `check(config)` refuses what the trainer cannot do;
                              `missing()` returns what this machine lacks. None of them imports the trainer

Backends are loaded here by name, so that only the libraries of the selected one are imported.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slim_rl.errors import ConfigError

if TYPE_CHECKING:  # slime's script is watched by what is in this folder, and needs neither
    from slim_rl.config import Config
    from slim_rl.dialogue.record import Dialogue

# Tokens of a response on a cluster, where the config sets no limit: a long 8×8 dialogue with room to spare.
RESPONSE_TOKENS = 6144
RESUME_HINT = "the same command resumes from the last checkpoint, or starts again if there is none yet."


@dataclass(frozen=True, slots=True)
class Request:
    """Arguments of `slim-rl train`.

    Attributes:
        path, overrides: file of the config, and changes to it.
        config: the resulting config.
        extra: further arguments for the trainer.
        fresh: True to start over instead of resuming.
        dry_run: True to check everything and print what would run.
        print_flags: True to print slime's flags that depend on the config, for its launch script.
    """

    path: Path
    overrides: Sequence[str]
    config: Config
    extra: Sequence[str] = ()
    fresh: bool = False
    dry_run: bool = False
    print_flags: bool = False


@dataclass(frozen=True)
class Result:
    """Folders of a run's results on this machine, and its held-out dialogues (empty if none were played)."""

    run_dir: Path
    log_dir: Path
    before: list[Dialogue]
    after: list[Dialogue]


def say(text: str) -> None:
    """Prints a line for the user."""
    print(f"slim-rl: {text}", file=sys.stderr, flush=True)


def start(request: Request) -> Result | None:
    """Starts the run with its config's backend. Returns its result where it was trained here, else None.

    Raises ConfigError if the run is to start over, which a cluster's trainer does under a new name only.
    """
    if request.fresh and request.config.train.backend != "trl":
        raise ConfigError("--fresh is for the trl backend; give the run another name or folder to start over.")
    return _launcher(request.config).start(request)  # type: ignore[no-any-return]


def train(config: Config | str | Path, *, fresh: bool = False) -> Result | None:
    """Trains by the trainer that the config names; an interrupted run of the same name and config resumes.

    TRL trains in this process alone, whatever `train.processes` is.

    Args:
        config: a config (`load_config`, `Config.changed`), its file, or the name of one that comes with slim_rl.
        fresh: start over instead of resuming.

    Returns:
        The run's folders and its held-out dialogues, where it was trained in this process (TRL).

    Raises:
        SlimError: as `slim-rl train` says it.
    """
    from slim_rl.config import Config, load_config

    if isinstance(config, Config):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.yaml"
            config.write(path)
            return train(path, fresh=fresh)
    alone = ("train.processes=1",)  # further processes would be the command's, and not this program's
    return start(Request(Path(config), alone, load_config(config, alone), fresh=fresh))


def check(config: Config) -> None:
    """Raises ConfigError if the config's backend cannot do what the config asks for."""
    _launcher(config).check(config)


def missing(config: Config) -> str:
    """Returns what this machine lacks for the config's backend, as a sentence; empty if nothing."""
    return str(_launcher(config).missing())


def _launcher(config: Config) -> Any:
    return importlib.import_module(f"{__name__}.{config.train.backend}.launch")
