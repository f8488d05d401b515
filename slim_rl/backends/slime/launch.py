"""Starts slime: one config and a few settings of the machines become slime's command line, as a job of Ray's.

    slim-rl train CONFIG --backend slime [--set key=value …] [-- settings and slime's own flags]
    scripts/run_matching.sh [settings and slime's own flags]

    settings (what the machines are)  ─►  config (what is trained)  ─►  layout (which GPUs)  ─►  arguments (slime's words)  ─►  the job

Everything that can be wrong is checked first, in that order, and the partner is made once, to see that it can be. Then the run's
missing games and config.yaml are written, and its folder is locked against a second start; the checkpoint is converted if slime cannot read it; slime's own parsers read the flags; a
Ray cluster is joined or started, and the job is submitted. A dry run prints the command after the same checks; it needs neither slime
nor a GPU.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from slim_rl import bundled
from slim_rl.backends import GO_ON, Request, is_trained, say, say_at_the_start
from slim_rl.backends.checkpoints import hub_name, locate_model, read_model_config
from slim_rl.backends.cost import cost_report
from slim_rl.backends.gpus import count_gpus
from slim_rl.backends.ready import check_games, check_model, try_partner
from slim_rl.backends.slime.arguments import Job, command_line
from slim_rl.backends.slime.cluster import DRIVER, Checkouts, check_save_dir, find_checkouts, submit
from slim_rl.backends.slime.layout import find_architecture, lay_out, parse_flags
from slim_rl.backends.slime.settings import Settings, read_settings
from slim_rl.backends.trackers import check_trackers
from slim_rl.config import ROOT_KEY, Config, parse_config, read_yaml
from slim_rl.config.trainers import shortened
from slim_rl.dialogue.dealing import ensure_games
from slim_rl.dialogue.requirements import check_training
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.errors import ConfigError, SlimError, as_sentence
from slim_rl.processes import interruptible, signals_end_the_run
from slim_rl.runs import check_same, claimed


def start(request: Request) -> None:
    """`slim-rl train` with slime. Raises SystemExit with the job's exit code, unless it is 0."""
    request.no_fresh()
    words = ["--config", str(request.path), *(f"--set={override}" for override in request.overrides), *request.extra]
    if code := launch([*words, *(["--dry-run"] if request.dry_run else [])]):
        raise SystemExit(code)


TRACKERS = ("tensorboard", "wandb")  # of slime's
_OF_SAMPLING = ("--rollout-temperature", "--rollout-top-p")  # slime's flags for two keys of the config


def check(config: Config) -> None:
    """Raises ConfigError if slime cannot do what the config asks for."""
    check_training(config)
    if config.train.exploring_starts and (config.policy.temperature != 1 or config.policy.top_p != 1):
        raise ConfigError(
            "train.exploring_starts puts questions whose logprobs SGLang tells for temperature 1 and the whole distribution alone; set "
            "policy.temperature and policy.top_p to 1."
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


def missing(words: Sequence[str]) -> str:
    """What this machine lacks to start slime with these words. Raises ConfigError, as `read_settings` does."""
    if count_gpus() or os.environ.get("RAY_ADDRESS"):
        return ""
    return (
        "this machine has no GPU, and slime trains on GPUs only. For the whole loop on a CPU: make run; with slime itself and a tiny "
        "model: make run-slime. To see the command that a cluster would run: --dry-run. To join a cluster from here: "
        "RAY_ADDRESS=http://HEAD:8265."
    )


def launch(words: Sequence[str], needs_model: bool = False) -> int:
    """Launches, or prints, one run. Returns the job's exit code.

    Args:
        words: settings and slime's own flags, as on the command line of the script.
        needs_model: MODEL must be given; otherwise the config's policy.model will do.

    Raises:
        SlimError: something is wrong with what was asked for, or could not be started.
    """
    settings, options, own = read_settings(words, os.environ)
    if needs_model and not settings.model:
        raise ConfigError(
            "MODEL is not set: give a checkpoint folder or a name on the hub, such as MODEL=Qwen/Qwen3-4B."
        )
    gpus = count_gpus()
    if not options.dry_run and (lacks := missing(words)):
        raise ConfigError(lacks)
    checkouts = find_checkouts(settings, options.dry_run)
    config, plugins = read_config(settings, options.overrides, options.plugins)
    job, flags, about = plan(settings, config, checkouts, own, gpus, options.dry_run)
    cost = cost_report(job.config, settings.evaluates_every(job.config.train.eval_every), job.folder)
    saved = check_save_dir(job.folder, settings.num_nodes, options.dry_run)
    before = "" if job.last is None or job.done else f"goes on from checkpoint {job.last} in {job.folder}"
    check_same(job.folder / "config.yaml", job.config)
    check_games(job.config)
    try_partner(job.config)
    for note in (about, saved, before, shortened(job.config), cost and f"partner: {cost}"):
        if note:
            say(note)
    if options.dry_run:
        print(_shown(job, checkouts, flags, DRIVER))
        return 0
    if job.done and not {"--ckpt-step", "--start-rollout-id"} & parse_flags(own).keys():
        say(is_trained(job.config, job.folder))
        return 0
    check_trackers(job.config)
    say_at_the_start(job.config)
    games = partial(ensure_games, job.config)
    with signals_end_the_run(), claimed(job.folder, job.config, games, **plugins):
        return submit(job, checkouts, flags, gpus)


def read_config(
    settings: Settings, overrides: Sequence[str], plugins: Sequence[Path] = ()
) -> tuple[Config, dict[str, Any]]:
    """The experiment, with what the settings change of it, and the keys of other plug-ins: those beside `slim_rl` in the config's
    file and those of `plugins`.

    Raises:
        ConfigError: a file cannot be used, or the config asks for what slime cannot do.
    """
    data = _mapping(settings.config)
    section, beside = (data.pop(ROOT_KEY), data) if ROOT_KEY in data else (data, {})
    foreign: dict[str, Any] = {}
    for path, keys in ((settings.config, beside), *((path, _mapping(path)) for path in plugins)):
        for key in keys:
            if key == ROOT_KEY:
                raise ConfigError(f"{path} holds a '{ROOT_KEY}' section: that is the run's config; give it as CONFIG.")
            if key in Config.model_fields:
                raise ConfigError(
                    f"{path}: '{key}' stands beside '{ROOT_KEY}', where it has no effect; move it into '{ROOT_KEY}' of the run's config."
                )
        foreign |= keys
    given = {
        "partner.kind": settings.partner,
        "data.train": settings.data,
        "data.eval": settings.eval_data,
        "train.steps": settings.num_rollout,
        "train.save_every": settings.save_interval,
    }
    own = ["train.backend=slime", *(_override(key, value) for key, value in given.items() if value)]
    return parse_config(section, [*overrides, *own], source=str(settings.config)), foreign


def _override(key: str, value: str | int) -> str:
    """A change of a key as on the command line; in quotes, on one line, any characters are safe."""
    text = yaml.safe_dump(value, default_style='"', width=math.inf)
    return f"{key}={text.strip()}"


def _mapping(path: Path) -> dict[str, Any]:
    data = read_yaml(bundled.config_file(path))
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{path} must be a mapping, but is {type(data).__name__}.")
    return data or {}


def plan(
    settings: Settings, config: Config, checkouts: Checkouts, own: Sequence[str], gpus: int, dry_run: bool
) -> tuple[Job, list[str], str]:
    """A run, its command line, and a sentence on the model where slime is at hand. All that can be wrong with it is checked here.

    Raises:
        SlimError: slime cannot train what the config asks for, or the GPUs cannot be divided so.
    """
    check(config)
    given = parse_flags(own)
    if make_training_reward(config).by_turn and "--use-opd" in given:
        raise ConfigError(
            f"train.reward={config.train.reward} gives advantages to turns, which take the place in slime that --use-opd needs for its teacher's: leave one out."
        )
    if config.train.exploring_starts and (flags := [flag for flag in _OF_SAMPLING if flag in given]):
        raise ConfigError(
            f"train.exploring_starts needs policy.temperature and policy.top_p of 1; leave {' and '.join(flags)} out."
        )
    name = settings.model or config.policy.model
    if settings.num_nodes > 1 and not Path(name).expanduser().is_dir():
        raise ConfigError(
            f"MODEL {name} is not a folder here: with several nodes it must be a folder on a disk that all of them see."
        )
    if name.startswith("Qwen") and "/" not in name and not Path(name).exists():
        name = f"Qwen/{name}"
    unknown = check_model(name, "MODEL" if settings.model else "policy.model")
    if dry_run and unknown:
        model, shape, about = Path(name), {}, unknown
    else:
        model, about = locate_model(name, download=not dry_run), ""
        shape = read_model_config(model)
    hub = name if unknown else hub_name(model)
    title = Path(hub or model).name
    model_flags = None
    if checkouts.slime is not None and shape:
        model_flags, found = find_architecture(shape, checkouts.slime)
        about = f"{title} is {found}"
    layout = lay_out(settings, shape, title, gpus, "--expert-model-parallel-size" in given)
    named = config.output_dir / f"{config.name}-{title}-{config.arm_name}"
    folder = Path(settings.save_dir or named).expanduser().absolute()
    start = model
    if settings.torch_dist:
        # absolute: the job has another working directory
        start = Path(settings.torch_dist).expanduser().absolute()
    elif shape and not checkouts.read_directly(model, shape):
        # beside the checkpoint, as slime has it; but the hub's cache is not ours to write to
        start = (config.output_dir.absolute() if hub else model.parent) / f"{title}_torch_dist"
    job = Job(_own_config(config, model, folder), folder, start, model_flags, layout, settings)
    return job, command_line(job, own), about


def _own_config(config: Config, model: Path, folder: Path) -> Config:
    """The config the hook reads: relative paths made absolute, the log beside the checkpoints, the run named.

    Raises:
        ConfigError: the folder's name is none for a run.
    """
    log = Path(os.path.normpath(folder / config.log.dir))
    parse_config({"name": folder.name}, source=f"SAVE_DIR {folder}")  # as the job will read it
    config = config.from_anywhere().changed(log={"dir": log}, policy={"model": str(model)})
    return config.changed(name=folder.name, arm=config.arm_name)


def _shown(job: Job, checkouts: Checkouts, flags: Sequence[str], driver: str) -> str:
    """The command as one would type it: one flag a line."""
    lines = []
    if checkouts.slime is None:
        lines.append(
            "# slime is not found here: the flags of the model's architecture, which are in slime's scripts/models, are left out; "
            "with SLIME_DIR the command is complete"
        )
    if not job.layout.parameters:
        lines.append(
            "# the model's config.json is not here: its architecture is left out, and TP and ENGINE_GPUS are not sized by it"
        )
    script = f"$SLIME_DIR/{job.entry}" if checkouts.slime is None else shlex.quote(f"{checkouts.slime}/{job.entry}")
    command = f"{shlex.quote(checkouts.python)} -m {driver} {script}"
    for word in flags:
        command += f" \\\n    {shlex.quote(word)}" if word.startswith("--") else f" {shlex.quote(word)}"
    return "\n".join([*lines, command])


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of scripts/run_matching.sh; an error is one sentence on stderr and exit code 1."""
    try:
        with interruptible(GO_ON):
            return launch(sys.argv[1:] if arguments is None else arguments, needs_model=True)
    except (SlimError, ModuleNotFoundError, OSError) as error:
        sentence = as_sentence(error)
        if sentence is None:
            raise
        say(sentence)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
