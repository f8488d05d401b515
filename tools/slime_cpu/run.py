"""A run of slime on this machine, without a GPU: SGLang, then Ray with slime's script in it; all in the run's folder.

    PYTHONPATH=tools python -m slime_cpu CONFIG [--set key=value …] [settings and slime's own flags]        (make run-slime)

Config, layout and flags are those of any launch; what differs is here. Every process that is started ends with this one. The stack plays
held-out games itself, before the first step and after the last.

    sglang.log, slime.log      what the two print
    hf/N, weights/             the model as it was saved after step N + 1, and on its way to SGLang
    model/                     the trained model
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from slim_rl.backends import Result, say
from slim_rl.backends.checkpoints import read_model_config
from slim_rl.backends.export import export, own_results
from slim_rl.backends.ready import check_games, try_partner
from slim_rl.backends.slime.arguments import Job, words
from slim_rl.backends.slime.cluster import Checkouts, find_checkouts
from slim_rl.backends.slime.launch import plan, read_config
from slim_rl.backends.slime.layout import parse_flags
from slim_rl.backends.slime.settings import Settings, read_settings
from slim_rl.config import Config
from slim_rl.dialogue.dealing import ensure_games
from slim_rl.errors import ConfigError, SlimError
from slim_rl.policies.servers import connect, starting
from slim_rl.processes import last_lines, running, signals_end_the_run
from slim_rl.runs import check_same, claimed
from slime_cpu import flags, sources
from slime_cpu.environment import environment
from slime_cpu.progress import told

DRIVER = f"{__package__}.driver"
_NEEDED = ("ray", "sglang", "sglang_router", "torch", "transformers")
_SGLANG = {
    "--device": "cpu",
    "--attention-backend": "torch_native",
    "--sampling-backend": "pytorch",
    "--grammar-backend": "none",
    "--disable-overlap-schedule": True,
    "--disable-cuda-graph": True,
    "--skip-server-warmup": True,
    "--mem-fraction-static": 0.1,  # of this machine's memory, which it shares
    "--max-total-tokens": 65536,
}


def launch(arguments: Sequence[str]) -> Result:
    """Trains what the config and the settings ask for; the words are those of scripts/run_matching.sh, and the config before them.

    Raises:
        SlimError: something of it cannot be had without a GPU, or slime ended with an error.
    """
    settings, options, own = read_settings(["--config", *arguments], os.environ)
    settings = settled(settings)
    config, plugins = read_config(settings, options.overrides, options.plugins)
    settings, own = adapted(settings, config, own)
    checkouts = find_checkouts(settings, dry_run=False)
    job, line, _ = plan(settings, config, checkouts, own, flags.GPUS, dry_run=False)
    check_same(job.folder / "config.yaml", job.config)
    check_games(job.config)
    try_partner(job.config)
    with signals_end_the_run(), claimed(job.folder, job.config, partial(ensure_games, job.config), **plugins):
        return train(job, checkouts, line)


def settled(settings: Settings) -> Settings:
    """The settings of a machine without a GPU: the sources where they are found, and Ray told of a GPU for training and one for playing."""
    named = {"SLIME_DIR": settings.slime_dir, "MEGATRON_DIR": settings.megatron_dir}
    slime, megatron = sources.find(os.environ | named)
    here = {"num_gpus": flags.GPUS, "colocate": "0", "slime_dir": str(slime), "megatron_dir": str(megatron)}
    return settings.model_copy(update=here)


def adapted(settings: Settings, config: Config, own: Sequence[str]) -> tuple[Settings, list[str]]:
    """The settings and slime's own flags for this run. Raises ConfigError if it cannot be had without a GPU."""
    if config.policy.top_p != 1:
        raise ConfigError(
            f"policy.top_p is {config.policy.top_p:g}: SGLang's router, as the package index has it, drops what slime needs to train on a "
            "part of the distribution; add --set policy.top_p=1."
        )
    if settings.num_nodes > 1:
        raise ConfigError("Without a GPU slime runs on one machine: leave NUM_NODES out.")
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise ConfigError(
            f"{', '.join(missing)} is not installed here: `make run-slime` makes an environment that has it."
        )
    if settings.eval_interval is None and not config.train.eval_every:
        settings = settings.model_copy(update={"eval_interval": config.train.steps})
    given = parse_flags(own)
    return settings, words(parse_flags(words(flags.megatron(given))) | given)


def train(job: Job, checkouts: Checkouts, line: Sequence[str]) -> Result:
    """Trains to the end, from the last checkpoint if there is one. Raises SlimError if slime ended otherwise."""
    if not job.done:
        _run(job, checkouts, line, -1 if job.last is None else job.last)
    export(job.folder, job.folder / "model", overwrite=True)
    before, after = own_results(job.config, job.folder, job.config.train.steps)
    return Result(job.folder, job.config.log.dir, before.get("before training", []), after.get("after training", []))


def _run(job: Job, checkouts: Checkouts, line: Sequence[str], done: int) -> None:
    config, log = job.config, job.folder / "slime.log"
    assert checkouts.slime is not None and checkouts.megatron is not None
    variables = environment(checkouts.slime, checkouts.megatron)
    say(
        f"{config.name}: {config.train.steps} steps of {config.train.dialogues} dialogues; everything is in {job.folder}"
    )
    say(
        f"starting SGLang, Ray, Megatron and slime, whose own words are in {log}; the first games are played in a minute or two"
    )
    context = read_model_config(Path(config.policy.model)).get("max_position_embeddings")
    arguments = words({**_SGLANG, "--dtype": flags.precision(parse_flags(line))})
    with starting("sglang", config.policy.model, job.folder / "sglang.log", arguments, variables) as engine:
        own = words(flags.engine(engine.url, context, job.folder))
        command = [sys.executable, "-m", DRIVER, f"{checkouts.slime}/{job.entry}", *line, *own]
        played = config.train.dialogues * config.seats_trained
        began = log.stat().st_size if log.exists() else 0
        with (
            log.open("ab") as output,
            told(config.log.dir / "train.jsonl", played, done),
            running(command, stdout=output, stderr=subprocess.STDOUT, env=variables) as process,
        ):
            engine.wait()  # both start at once: they import for half a minute each
            code = process.wait()
        if code:
            said = _why(log, began) or f"slime ended with exit code {code}, for a reason above; its words are in {log}."
            gone = "" if _answers(engine.url) else f"SGLang is gone: see {engine.log}. "
            raise SlimError(f"{gone}{said}")


def _answers(url: str) -> bool:
    try:
        connect(url)
    except SlimError:
        return False
    return True


def _why(log: Path, began: int) -> str:
    """What our driver has said of a run that ended early; where it said nothing, the end of the log goes to the screen."""
    with log.open("rb") as file:
        file.seek(began)
        said = [line.decode(errors="replace").strip() for line in file if line.startswith(b"slim-rl: ")]
    if not said:
        print(last_lines(log), file=sys.stderr)
    return " ".join(sentence.removeprefix("slim-rl: ") for sentence in said)
