"""`slim-rl train` with TRL: the run itself, in this process."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from slim_rl.backends import Request, Result, say, say_at_the_start
from slim_rl.backends.cost import cost_report
from slim_rl.backends.gpus import local_processes
from slim_rl.backends.ready import check_ready
from slim_rl.config import Config
from slim_rl.config.trainers import shortened
from slim_rl.dialogue.requirements import check_training
from slim_rl.errors import ConfigError
from slim_rl.formats import count
from slim_rl.policies import check_model_folder
from slim_rl.ranks import joined_by, own_rank
from slim_rl.runs import RunFolder


def check(config: Config) -> None:
    """Raises ConfigError if TRL cannot do what the config asks for."""
    check_training(config)


def missing(words: Sequence[str]) -> str:
    """Returns what this machine lacks: nothing, since TRL trains on any."""
    return ""


def start(request: Request) -> Result | None:
    """Trains, or says what would be played and written (see `dry_run`)."""
    config = request.config
    if request.extra:
        raise ConfigError(f"'{request.extra[0]}' is an override for verl; with trl, keys are changed by --set.")
    check(config)
    if (cost := cost_report(config)) and own_rank() == 0:
        print(f"partner: {cost}", file=sys.stderr)
    if own_rank() == 0:
        RunFolder(config).check(request.fresh)
        check_model_folder(config.run_dir / "model")
        for note in (check_ready(config), shortened(config)):
            if note:
                say(note)
    if request.dry_run:
        from slim_rl.backends.trl.dry_run import dry_run

        print("\n".join(dry_run(config)))
        return None
    # TRL marks rollout_func experimental at every start; that is why it is pinned.
    warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
    changes = [word for override in request.overrides for word in ("--set", override)]
    if own_rank() == 0:
        say(
            f"{config.name}: {count(config.train.steps, 'step')} of {config.train.dialogues} dialogues; loading TRL and the model"
        )
    with joined_by(local_processes(config.train.processes), ["train", str(request.path), *changes]):
        # Here, so that the processes load the libraries at the same time, which takes seconds.
        from slim_rl.backends.trl.run import train

        if own_rank() == 0:
            say_at_the_start(config)
        return train(config, fresh=request.fresh)
