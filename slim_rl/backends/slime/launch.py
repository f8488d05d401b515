"""Training with slime: `slim-rl train CONFIG --backend slime` runs scripts/run_matching.sh, which starts slime as a job of Ray's.

The script holds the flags and starts the processes. It gets the flags that depend on the config from `print_flags`, which first checks
what can be wrong (config, model, games, partner), and writes the run's config.yaml and missing games.
"""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from slim_rl import bundled
from slim_rl.backends import Request
from slim_rl.backends.checkpoints import last_whole, locate_model
from slim_rl.backends.ready import check_start, check_training, is_trained
from slim_rl.backends.slime.flags import Flags, check_written, flags_of, lines, parse_flags, settled
from slim_rl.backends.slime.job import slime_folder
from slim_rl.config import ROOT_KEY, Config, parse_config, read_yaml
from slim_rl.config.trainers import from_anywhere
from slim_rl.dialogue.games_file import ensure_games
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.errors import ConfigError
from slim_rl.processes import running, signals_end_the_run
from slim_rl.ranks import count_gpus
from slim_rl.runs import RunFolder

SCRIPT = bundled.ROOT / "scripts" / "run_matching.sh"
TRACKERS = ("tensorboard", "wandb")  # of slime's


def start(request: Request) -> None:
    """Runs the script, or prints flags for it. Raises SystemExit with the script's exit code, unless it is 0."""
    if request.print_flags:
        for line in print_flags(request):
            print(line)
        return
    options = [*(f"--set={override}" for override in request.overrides), *(["--dry-run"] if request.dry_run else [])]
    folder = str(request.config.run_dir.absolute())
    usual = {"MODEL": request.config.policy.model, "SAVE_DIR": folder, "PYTHON": sys.executable}
    variables = {name: value for name, value in os.environ.items() if value}
    command = ["bash", str(SCRIPT), *options, *request.extra]
    with signals_end_the_run(), running(command, env=usual | variables | {"CONFIG": str(request.path)}) as process:
        code = process.wait()
    if code:
        raise SystemExit(code)


def check(config: Config) -> None:
    """Raises ConfigError if slime cannot do what the config asks for."""
    check_training(config)
    if config.train.loss == "constant":
        raise ConfigError("train.loss is constant, which slime does not have; choose sequence or token.")
    if config.train.lora is not None:
        raise ConfigError("train.lora is set, but slime trains all weights; set it to null, or use trl or verl.")
    if others := [name for name in config.train.report_to if name not in TRACKERS]:
        raise ConfigError(
            f"train.report_to names {' and '.join(others)}, which slime does not have; choose among {' and '.join(TRACKERS)}."
        )


def missing() -> str:
    """Returns what this machine lacks to start slime; empty if nothing."""
    if count_gpus() or os.environ.get("RAY_ADDRESS"):
        return ""
    return (
        "this machine has no GPU, and slime trains on GPUs only. For the whole loop on a CPU: make run; with slime itself and a tiny "
        "model: make run-slime. To see the command that a cluster would run: --dry-run. To join a cluster from here: "
        "RAY_ADDRESS=http://HEAD:8265."
    )


def print_flags(request: Request) -> list[str]:
    """Returns the flags that depend on the config, one per line; empty if the run is trained.

    Unless it is a dry run, it writes the run's config.yaml and missing games. MODEL and SAVE_DIR come from the environment, and the
    request's extra arguments are the flags that the script and the user give.

    Raises:
        SlimError: something is wrong with the config, its model, games or partner, with a flag, or with the run's folder.
    """
    user_flags = parse_flags(request.extra)
    check(request.config)
    updates = _check_flags(request.config, user_flags)
    if not request.dry_run and (lacks := missing()):
        raise ConfigError(lacks)
    model = locate_model(os.environ.get("MODEL") or request.config.policy.model, download=not request.dry_run)
    folder = Path(os.environ.get("SAVE_DIR") or request.config.run_dir).expanduser().absolute()
    config = of_folder(request.config, model, folder)
    run, last = RunFolder(config, folder), last_whole(folder)
    check_start(config, run)
    chosen = {"--ckpt-step", "--start-rollout-id"} & user_flags.keys()
    trained = not chosen and last is not None and is_trained(config.name, folder, last + 1, config.train.steps)
    flags = lines(flags_of(settled(config), folder, updates))
    if request.dry_run:
        return flags
    if trained:
        return []
    with run.begin(prepare=partial(ensure_games, config), **_plugins(request.path)):
        return flags  # the job then locks the folder itself


def _check_flags(config: Config, flags: Flags) -> int:
    """Returns the number of updates per step. Raises ConfigError for a flag that would undo what a run needs."""
    refused = read_yaml(Path(__file__).with_name("refused.yaml"))
    given = {*flags, *(f"{flag} {value}" for flag, values in flags.items() for value in values)}
    for flag, reason in (refused["dialogue"] | refused["launch"]).items():
        if flag in given:
            raise ConfigError(f"{flag} is refused: {reason}.")
    check_written(flags, slime_folder())
    if make_training_reward(config).by_turn and "--use-opd" in flags:
        raise ConfigError(
            f"train.reward={config.train.reward} keeps the turns' advantages in the field that --use-opd needs for its teacher; leave "
            "one out."
        )
    batch, dialogues = flags.get("--global-batch-size"), config.train.dialogues * config.seats_trained
    if batch and (not batch[0].isdecimal() or not int(batch[0]) or dialogues % int(batch[0])):
        raise ConfigError(
            f"--global-batch-size {batch[0]} does not divide the {dialogues} dialogues of a step, and slime would drop the rest. Choose a "
            "divisor."
        )
    return dialogues // int(batch[0]) if batch else 1


def _plugins(path: Path) -> dict[str, Any]:
    """Returns the keys of slime's other plug-ins, which are next to `slim_rl` in the config's file."""
    data = read_yaml(bundled.config_file(path))
    return {key: value for key, value in data.items() if key != ROOT_KEY} if ROOT_KEY in (data or {}) else {}


def of_folder(config: Config, model: Path, folder: Path) -> Config:
    """Returns the config that the job reads: absolute paths and the folder's name.

    Raises:
        ConfigError: the folder's name cannot be a run's name.
    """
    parse_config({"name": folder.name}, source=f"SAVE_DIR {folder}")
    config = from_anywhere(config).changed(policy={"model": str(model)})
    return config.changed(name=folder.name, arm=config.arm_name)
