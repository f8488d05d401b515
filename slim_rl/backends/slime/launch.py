"""Starts slime: one config and a few settings of the machines become slime's command line, as a job of Ray's.

    slim-rl train CONFIG --backend slime [--set key=value …] [-- settings and slime's own flags]
    scripts/run_matching.sh [settings and slime's own flags]

What happens, in this order: everything that can be wrong is checked; the run's config.yaml and missing games are written; the
checkpoint is converted if slime cannot read it; slime's own parsers read the flags; a Ray cluster is joined or started,
and the job is submitted. A dry run ends after the checks and prints the command; it needs neither slime nor a GPU.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from slim_rl import bundled
from slim_rl.backends import GO_ON, Request, say, say_what_it_pays
from slim_rl.backends.checkpoints import hub_name, last_whole, locate_model, read_model_config
from slim_rl.backends.cost import cost_report
from slim_rl.backends.slime.arguments import Run, check_warmup, command_line
from slim_rl.backends.slime.cluster import ray_cluster, run_job, runtime_environment
from slim_rl.backends.slime.layout import check_batch, count_gpus, has_nvlink, lay_out
from slim_rl.backends.slime.model import find_architecture, parse_flags, reads_directly
from slim_rl.backends.slime.places import Places, check_flags, convert, find_places, router_policy
from slim_rl.backends.slime.settings import Settings, read_settings
from slim_rl.backends.slime.storage import check_save_dir
from slim_rl.config import ROOT_KEY, Config, parse_config, read_yaml
from slim_rl.dialogue.credit import check_credit
from slim_rl.dialogue.dealing import ensure_games
from slim_rl.errors import ConfigError, SlimError
from slim_rl.keys import shortened
from slim_rl.processes import interruptible, signals_end_the_run

DRIVER = "slim_rl.backends.slime.driver"  # runs slime's script


def start(request: Request) -> None:
    """`slim-rl train` with slime. Raises SystemExit with the job's exit code, unless it is 0."""
    request.no_fresh()
    words = ["--config", str(request.path), *(f"--set={override}" for override in request.overrides), *request.extra]
    if code := launch([*words, *(["--dry-run"] if request.dry_run else [])]):
        raise SystemExit(code)


def check(config: Config) -> None:
    """Raises ConfigError if slime cannot do what the config asks for."""
    check_credit(config)
    if config.train.loss == "constant":
        raise ConfigError("train.loss is constant, which slime does not have; choose sequence or token.")


def missing() -> str:
    """What this machine lacks to start slime."""
    if count_gpus() or os.environ.get("RAY_ADDRESS"):
        return ""
    return (
        "this machine has no GPU, and slime trains on GPUs only. For the whole loop on a CPU: make run. To see the command "
        "that a cluster would run: --dry-run. To join a cluster from here: RAY_ADDRESS=http://HEAD:8265."
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
    dry = options.dry_run
    gpus = count_gpus()
    if not dry and (lacks := missing()):
        raise ConfigError(lacks)
    places = find_places(settings, dry)
    config, plugins = read_config(settings, options.overrides, options.plugins)
    run, flags, about = plan(settings, config, places, own, gpus, dry)
    cost = cost_report(run.config, run.eval_interval, run.folder)
    saved = check_save_dir(run.folder, settings.num_nodes, dry)
    before = f"goes on from checkpoint {last_whole(run.folder)} in {run.folder}" if run.resumes else ""
    for note in (about, saved, before, shortened(run.config), cost and f"partner: {cost}"):
        if note:
            say(note)
    if dry:
        print(_shown(run, places, flags))
        return 0

    say_what_it_pays(run.config)
    run.config.write(run.folder / "config.yaml", **plugins)
    ensure_games(run.config)
    with signals_end_the_run():
        if run.start != Path(run.config.policy.model):
            convert(run, places, gpus)
        if gpus:  # Megatron's parser asks a GPU for its kind
            check_flags(run, places, flags)
        with ray_cluster(settings.num_nodes, run.layout.node_gpus, run.folder / "ray.log") as environment:
            key = run.config.partner.openai.api_key_env
            runtime = runtime_environment(places.path(run.config), has_nvlink(), key)
            if "tensorboard" in run.config.train.report_to:
                runtime["env_vars"].setdefault("TENSORBOARD_DIR", str(run.folder / "tensorboard"))
            train = run.config.train
            say(
                f"{run.config.name}: {train.steps} steps of {train.games_per_step} games, {train.group_size} dialogues each; "
                f"everything is in {run.folder}"
            )
            job = f"{run.config.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
            command = [places.python, "-m", DRIVER, f"{places.slime}/{run.entry}", *flags]
            return run_job(job, command, runtime, environment)


def read_config(
    settings: Settings, overrides: Sequence[str], plugins: Sequence[Path] = ()
) -> tuple[Config, dict[str, Any]]:
    """The experiment, with what the settings change of it, and the keys of other plug-ins: those beside `slim_rl` in the config's
    file and those of `plugins`.

    Raises:
        ConfigError: a file cannot be used, or the config asks for what slime cannot do.
    """
    data = _mapping(settings.config)
    foreign = {key: value for key, value in data.items() if key != ROOT_KEY} if ROOT_KEY in data else {}
    for path in plugins:
        more = _mapping(path)
        if ROOT_KEY in more:
            raise ConfigError(f"{path} holds a '{ROOT_KEY}' section: that is the run's config; give it as CONFIG.")
        foreign |= more
    changed = {
        "partner.kind": settings.partner,
        "data.train": settings.data,
        "data.eval": settings.eval_data,
        "train.steps": settings.num_rollout,
        "train.save_every": settings.save_interval,
    }
    given = [f"{key}={_quoted(value)}" for key, value in changed.items() if value]
    # in a fully asynchronous run nearly every game sees new weights: restarted each time, none would end
    usual = ["slime.new_weights=keep"] if settings.asynchronous == "full" else []
    config = parse_config(data.get(ROOT_KEY, data), [*usual, *overrides, *given], source=str(settings.config))
    return config, foreign


def _mapping(path: Path) -> dict[str, Any]:
    data = read_yaml(bundled.config_file(path))
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{path} must be a mapping, but is {type(data).__name__}.")
    return data or {}


def _quoted(value: Any) -> str:
    """A value as YAML on one line; any characters are safe."""
    text = str(yaml.safe_dump(value, default_style='"' if isinstance(value, str) else None, width=math.inf))
    return text.removesuffix("...\n").strip()


def own_config(config: Config, model: Path, folder: Path) -> Config:
    """The config the hook reads: relative paths made absolute, the log beside the checkpoints, the run named."""
    data = {"train": config.data.train.absolute()}
    if config.data.eval is not None:
        data["eval"] = config.data.eval.absolute()
    changed = {
        "data": config.data.model_copy(update=data),
        "log": config.log.model_copy(update={"dir": folder / config.log.dir}),
        "policy": config.policy.model_copy(update={"model": str(model)}),
        "train": config.train.model_copy(update={"backend": "slime"}),
        "name": folder.name,
        "arm": config.arm_name,
    }
    return config.model_copy(update=changed)


def plan(
    settings: Settings, config: Config, places: Places, own: Sequence[str], gpus: int, dry_run: bool
) -> tuple[Run, list[str], str]:
    """A run, its command line, and a sentence on the model where slime is at hand. All that can be wrong with it is checked here.

    Raises:
        SlimError: slime cannot train what the config asks for, or the GPUs cannot be divided so.
    """
    check(config)
    if config.train.credit == "turn" and "--use-opd" in parse_flags(own):
        raise ConfigError(
            "train.credit is turn, whose numbers slime carries where --use-opd has its teacher's: leave one out."
        )
    name = settings.model or config.policy.model
    if settings.num_nodes > 1 and not Path(name).expanduser().is_dir():
        raise ConfigError(
            f"MODEL {name} is not a folder here: with several nodes it must be a folder on a disk that all of them see."
        )
    model = locate_model(name, download=not dry_run)
    hub = hub_name(model)
    title = Path(hub or model).name
    shape = read_model_config(model)
    model_flags, about = None, ""
    if places.slime is not None:
        architecture = find_architecture(shape, places.slime)
        model_flags = architecture.flags
        corrected = f", with {'; '.join(architecture.corrected)}" if architecture.corrected else ""
        about = f"{title} is slime's {architecture.script}{corrected}"
    layout = lay_out(settings, shape, title, gpus, "--expert-model-parallel-size" in parse_flags(own))
    folder = (
        Path(settings.save_dir) if settings.save_dir else config.output_dir / f"{config.name}-{title}-{config.arm_name}"
    )
    folder = folder.expanduser().absolute()
    start = model
    if settings.torch_dist:
        # absolute: the job has a working directory of its own
        start = Path(settings.torch_dist).expanduser().absolute()
    elif not reads_directly(model, shape, places.slime):
        # beside the checkpoint, as slime has it; but the hub's cache is not ours to write to
        start = (config.output_dir.absolute() if hub else model.parent) / f"{title}_torch_dist"
    router = os.environ.get("ROUTER_POLICY") or router_policy()
    config = own_config(config, model, folder)
    run = Run(config, folder, start, model_flags, layout, settings.asynchronous, settings.eval_interval, router)
    flags = command_line(run, own, os.environ)
    check_batch(parse_flags(flags))
    check_warmup(parse_flags(flags))
    return run, flags, about


def _shown(run: Run, places: Places, flags: Sequence[str]) -> str:
    """The command as one would type it: one flag a line."""
    lines = []
    if run.model_flags is None:
        lines.append(
            "# slime is not found here: the flags of the model's architecture, which are in slime's scripts/models, are left out; "
            "with SLIME_DIR the command is whole"
        )
    slime = str(places.slime) if places.slime is not None else "$SLIME_DIR"
    script = f"{slime}/{run.entry}" if places.slime is None else shlex.quote(f"{slime}/{run.entry}")
    command = f"{shlex.quote(places.python)} -m {DRIVER} {script}"
    for word in flags:
        command += f" \\\n    {shlex.quote(word)}" if word.startswith("--") else f" {shlex.quote(word)}"
    return "\n".join([*lines, command])


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of scripts/run_matching.sh; an error is one sentence on stderr and exit code 1."""
    try:
        with interruptible(GO_ON):
            return launch(sys.argv[1:] if arguments is None else arguments, needs_model=True)
    except SlimError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
