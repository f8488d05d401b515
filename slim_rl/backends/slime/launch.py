"""Training with slime: `slim-rl train CONFIG --backend slime` runs scripts/run_matching.sh, which starts slime as a job of Ray's.

The script holds the flags and starts the processes. It gets the flags that depend on the config from `print_flags`, which first checks
what can be wrong (config, model, games, partner, batch), and writes the run's config.yaml and missing games.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from slim_rl import bundled
from slim_rl.backends import Request, is_trained, say, say_at_the_start
from slim_rl.backends.checkpoints import last_whole, locate_model, read_model_config
from slim_rl.backends.cost import cost_report
from slim_rl.backends.gpus import count_gpus
from slim_rl.backends.ready import check_environment, check_games, check_model, try_partner
from slim_rl.backends.slime import UNPLAYABLE
from slim_rl.backends.slime.flags import Flags, flags_of, lines, parse_flags, settled
from slim_rl.backends.trackers import check_trackers
from slim_rl.config import ROOT_KEY, Config, parse_config, read_yaml
from slim_rl.config.trainers import shortened
from slim_rl.dialogue.dealing import ensure_games
from slim_rl.dialogue.requirements import check_training
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.errors import ConfigError, nearest
from slim_rl.processes import running, signals_end_the_run
from slim_rl.runs import check_same, claimed

SCRIPT = bundled.ROOT / "scripts" / "run_matching.sh"
SETTINGS = (  # variables that the script reads
    "CONFIG", "MODEL", "MODEL_SCRIPT", "TORCH_DIST", "SAVE_DIR", "NUM_NODES", "NUM_GPUS", "TP", "ENGINE_GPUS", "ASYNC", "COLOCATE",
    "ROLLOUT_GPUS", "SLIME_DIR", "MEGATRON_DIR", "ROUTER_POLICY", "RAY_ADDRESS", "RAY_PORT", "MASTER_ADDR",
)  # fmt: skip
_SLIMES = ("--colocate", "--router-policy")  # slime's flags with the name of a setting
TRACKERS = ("tensorboard", "wandb")  # of slime's
_KEYS = {  # settings of release 0.1 -> keys of the config
    "PARTNER": "partner.kind",
    "DATA": "data.train",
    "EVAL_DATA": "data.eval",
    "NUM_ROLLOUT": "train.steps",
    "SAVE_INTERVAL": "train.save_every",
    "EVAL_INTERVAL": "train.eval_every",
}
_REFUSED = {
    **UNPLAYABLE,
    "--num-steps-per-rollout": "--global-batch-size sets the updates per step; give that instead",
    "--custom-config-path": "slime reads one such file, the run's; write the keys beside slim_rl in the config",
    "--prompt-data": "the config's games are trained on; set data.train",
    "--hf-checkpoint": "the policy is MODEL; set that",
    **dict.fromkeys(("--save", "--load"), "the run's folder is SAVE_DIR; set that"),
}
_OF_SAMPLING = ("--rollout-temperature", "--rollout-top-p")  # slime's flags of two keys of the config


def start(request: Request) -> None:
    """Runs the script, or prints flags for it. Raises SystemExit with the script's exit code, unless it is 0."""
    request.no_fresh()
    if request.print_flags:
        for line in print_flags(request):
            print(line)
        return
    if not request.dry_run:
        say_at_the_start(request.config)
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
    if config.train.exploring_starts and (config.policy.temperature != 1 or config.policy.top_p != 1):
        raise ConfigError(
            "train.exploring_starts needs the logprobs of forced questions, which SGLang returns for the unchanged distribution only. "
            "Set policy.temperature and policy.top_p to 1."
        )
    if config.train.loss == "constant":
        raise ConfigError("train.loss is constant, which slime does not have; choose sequence or token.")
    if config.train.lora is not None:
        raise ConfigError(
            "train.lora is set, but slime trains all weights; set it to null, or choose train.backend trl or verl."
        )
    if others := [name for name in config.train.report_to if name not in TRACKERS]:
        raise ConfigError(
            f"train.report_to names {' and '.join(others)}, which slime does not have; choose among {' and '.join(TRACKERS)}."
        )


def missing(words: object = ()) -> str:
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
    _check_settings(os.environ)
    user_flags = parse_flags(request.extra)
    check(request.config)
    _check_given(request.config, user_flags)
    plugins = _plugins(request.path)
    if not request.dry_run and (lacks := missing()):
        raise ConfigError(lacks)
    model, unknown = _model(request.config, request.dry_run)
    folder = Path(os.environ.get("SAVE_DIR") or request.config.run_dir).expanduser().absolute()
    config = _of_folder(request.config, model, folder)
    flags = flags_of(settled(config), folder, user_flags)
    last = last_whole(folder)
    trained = last is not None and last + 1 >= config.train.steps
    check_same(folder / "config.yaml", config)
    check_games(config)
    try_partner(config)
    cost = cost_report(config, settled(config).train.eval_every, folder)
    resumes = "" if last is None or trained else f"Resuming {config.name} from checkpoint {last} in {folder}."
    for note in (unknown, resumes, shortened(config), cost and f"partner: {cost}"):
        if note:
            say(note)
    if request.dry_run:
        return lines(flags)
    if trained and not {"--ckpt-step", "--start-rollout-id"} & user_flags.keys():
        say(is_trained(config, folder))
        return []
    check_trackers(settled(config))
    with claimed(folder, config, partial(ensure_games, config), **plugins):  # the job then locks the folder itself
        return lines(flags)


def _check_settings(environment: Mapping[str, str]) -> None:
    """Raises ConfigError for a variable that would have no effect."""
    check_environment(SETTINGS, environment)
    for name, key in _KEYS.items():
        if value := environment.get(name):
            raise ConfigError(f"{name}={value} has no effect. Give --set {key}={value} instead.")


def _check_given(config: Config, user_flags: Flags) -> None:
    """Raises ConfigError for a flag that would undo what a run needs."""
    for flag in user_flags:
        name = flag.removeprefix("--").replace("-", "_").upper()
        if name in _KEYS or (name in SETTINGS and flag not in _SLIMES):
            instead = f"--set {_KEYS[name]}=..." if name in _KEYS else f"the variable {name}=..."
            raise ConfigError(f"{flag} is not a flag of slime's; give {instead} instead.")
        if nearest(flag, ["--dry-run"]):
            raise ConfigError(f"{flag} is not a flag of slime's; did you mean --dry-run?")
        if flag in _REFUSED:
            raise ConfigError(f"{flag} is refused: {_REFUSED[flag]}.")
    if make_training_reward(config).by_turn and "--use-opd" in user_flags:
        raise ConfigError(
            f"train.reward={config.train.reward} keeps the turns' advantages in the field that --use-opd needs for its teacher; leave "
            "one out."
        )
    if config.train.exploring_starts and (flags := [flag for flag in _OF_SAMPLING if flag in user_flags]):
        raise ConfigError(
            f"train.exploring_starts needs policy.temperature and policy.top_p of 1; leave {' and '.join(flags)} out."
        )


def _plugins(path: Path) -> dict[str, Any]:
    """Returns the keys of slime's other plug-ins, which are next to `slim_rl` in the config's file."""
    data = read_yaml(bundled.config_file(path))
    return {key: value for key, value in data.items() if key != ROOT_KEY} if ROOT_KEY in (data or {}) else {}


def _model(config: Config, dry_run: bool) -> tuple[Path, str]:
    """Returns the model's folder, downloaded if need be, and a note if a dry run could not look it up.

    Raises:
        SlimError: there is no such model, it brings its own code, or it is not a folder that several nodes see.
    """
    name, key = (os.environ.get("MODEL"), "MODEL") if os.environ.get("MODEL") else (config.policy.model, "policy.model")
    assert name is not None
    if os.environ.get("NUM_NODES", "1") not in ("", "1") and not Path(name).expanduser().is_dir():
        raise ConfigError(
            f"{key}={name} is not a folder here. With several nodes it must be a folder on a disk that all of them see."
        )
    if name.startswith("Qwen") and "/" not in name and not Path(name).exists():
        name = f"Qwen/{name}"
    unknown = check_model(name, key)
    if dry_run and unknown:
        return Path(name), unknown
    model = locate_model(name, download=not dry_run)
    read_model_config(model)  # refuses code of the model's own
    return model, ""


def _of_folder(config: Config, model: Path, folder: Path) -> Config:
    """Returns the config that the job reads: absolute paths, the log in the run's folder, the folder's name.

    Raises:
        ConfigError: the folder's name cannot be a run's name.
    """
    log = Path(os.path.normpath(folder / config.log.dir))
    parse_config({"name": folder.name}, source=f"SAVE_DIR {folder}")
    config = config.from_anywhere().changed(log={"dir": log}, policy={"model": str(model)})
    return config.changed(name=folder.name, arm=config.arm_name)
