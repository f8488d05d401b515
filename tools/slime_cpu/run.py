"""A run of slime on this machine, without a GPU: SGLang, then scripts/run_matching.sh, in the run's folder.

    PYTHONPATH=tools python -m slime_cpu CONFIG [--set key=value …] [slime's flags]        (make run-slime)

The script gets its checks, flags and config as on a cluster; this module adds the flags and commands that a machine without a GPU needs.
Every process that is started ends with this one. Files in the run's folder besides those of any run:

    sglang.log, slime.log      output of the two
    hf/N, weights/             the model saved last, after step N + 1, and on its way to SGLang
    model/                     the trained model
"""

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from slim_rl.backends import Result, say
from slim_rl.backends.checkpoints import last_whole, locate_model, numbered
from slim_rl.backends.export import export, own_evaluations, read_run
from slim_rl.backends.slime.flags import parse_flags, words
from slim_rl.backends.slime.launch import SCRIPT, of_folder
from slim_rl.config import Config, load_config
from slim_rl.dialogue.games_file import games_files
from slim_rl.errors import ConfigError, SlimError
from slim_rl.files import read_object
from slim_rl.processes import running, signals_end_the_run
from slim_rl.runs import RunFolder
from slime_cpu import flags, room, sources
from slime_cpu.architecture import architecture
from slime_cpu.environment import environment, of_the_script
from slime_cpu.progress import told
from slime_cpu.server import answers, last_lines, starting

_NEEDED = ("ray", "sglang", "sglang_router", "torch", "transformers")
_SGLANG = {
    "--device": "cpu",
    "--attention-backend": "torch_native",
    "--sampling-backend": "pytorch",
    "--grammar-backend": "none",
    "--disable-overlap-schedule": True,
    "--disable-cuda-graph": True,
    "--skip-server-warmup": True,
    "--sleep-on-idle": True,  # else its scheduler takes a core while Megatron trains
    "--mem-fraction-static": 0.12,  # of free memory: weights are a tenth of what `room` asks for
    "--max-total-tokens": 65536,
    "--schedule-policy": "lpm",  # one dialogue of a group reads the prompt, and the others after it find it read
    "--max-prefill-tokens": 192,
}


def launch(arguments: Sequence[str]) -> Result:
    """Trains from the last checkpoint, if there is one, to the end.

    Raises:
        SlimError: the config cannot be trained without a GPU, or the script ended with an error.
    """
    parser = argparse.ArgumentParser("slime_cpu", allow_abbrev=False)
    parser.add_argument("config", type=Path)
    parser.add_argument("--set", action="append", default=[])
    options, slime_flags = parser.parse_known_args([word for word in arguments if word != "--"])
    changes = [*options.set, "train.backend=slime"]
    config = load_config(options.config, changes)
    check(config)
    if "eval" in games_files(config) and not config.train.eval_every:
        changes.append(f"train.eval_every={config.train.steps}")  # before the first step and after the last
    folder = Path(os.environ.get("SAVE_DIR") or config.run_dir).absolute()
    of_job = of_folder(load_config(options.config, changes), locate_model(config.policy.model, download=False), folder)
    RunFolder(of_job, folder).check()
    if last_whole(folder) != config.train.steps - 1:
        with signals_end_the_run():
            train(options.config, config, changes, slime_flags, folder)
    export(folder, folder / "model", overwrite=True)
    config = read_run(folder)
    played = own_evaluations(config, folder, config.train.steps)
    return Result(folder, folder / "logs", played.get("before training", []), played.get("after training", []))


def check(config: Config) -> None:
    """Raises ConfigError if the config cannot be trained without a GPU, or a package is missing."""
    if config.policy.top_p != 1:
        raise ConfigError(
            f"policy.top_p is {config.policy.top_p:g}, but the package index's SGLang router drops what slime needs to train on a "
            "truncated distribution. Add --set policy.top_p=1."
        )
    if os.environ.get("NUM_NODES", "1") != "1":
        raise ConfigError("NUM_NODES: without a GPU slime runs on one machine; leave it out.")
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise ConfigError(f"Not installed: {', '.join(missing)}. `make run-slime` makes an environment with them.")


def train(path: Path, config: Config, changes: Sequence[str], slime_flags: Sequence[str], folder: Path) -> None:
    """Starts SGLang and the script, and waits for the end. Raises SlimError if either fails."""
    slime, megatron = sources.find()
    folder.mkdir(parents=True, exist_ok=True)
    log, parsed = folder / "slime.log", parse_flags(slime_flags)
    model = str(locate_model(config.policy.model, download=False))
    room.check(Path(model), folder)
    say(f"starting SGLang, Ray, Megatron and slime (output in {log}); the first games are played in a minute or two")
    shape, memory = read_object(Path(model) / "config.json"), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    context, dtype = shape.get("max_position_embeddings"), {"--sglang-dtype": flags.precision(config, parsed)}
    if not os.environ.get("MODEL_SCRIPT"):
        architecture(shape)  # raises for a model of another family
    arguments = words({**_SGLANG, "--dtype": dtype["--sglang-dtype"]})
    threads = {"OMP_NUM_THREADS": str(config.train.threads)}
    with starting(model, folder / "sglang.log", arguments, environment(slime, megatron) | threads) as engine:
        ours = words(
            {**flags.trainer(config, shape["vocab_size"], memory), **flags.engine(engine.url, context, folder), **dtype}
        )
        command = ["bash", str(SCRIPT), *(f"--set={change}" for change in changes), *ours, *slime_flags]
        variables = of_the_script(slime, megatron)
        variables |= {"CONFIG": str(path), "MODEL": model, "SAVE_DIR": str(folder), "PYTHON": sys.executable}
        played, done = config.dialogues_played * config.seats_trained, last_whole(folder)
        began = log.stat().st_size if log.exists() else 0
        log_file = RunFolder(config, folder).logs / "train.jsonl"
        steps = told(log_file, log, played, -1 if done is None else done, partial(keep_last, folder / "hf"))
        with steps, running(command, env=variables) as process:
            engine.wait()  # both start at once: they import for half a minute each
            code = process.wait()
        if code:
            raise SlimError(_why(engine.url, folder, began, code))


def keep_last(models: Path) -> None:
    """Removes all but the last of the models that slime has saved: one of 0.5B parameters takes 1 GB."""
    for _, folder in sorted(numbered(models, "").items())[:-1]:
        shutil.rmtree(folder)


def _why(url: str, folder: Path, began: int, code: int) -> str:
    """Returns what the driver printed about a run that ended early; without such a line, the end of the log goes to the screen."""
    log, messages = folder / "slime.log", list[str]()
    if log.exists():
        with log.open("rb") as file:
            file.seek(began)
            messages = [line.decode(errors="replace").strip() for line in file if line.startswith(b"slim-rl: ")]
        if not messages:
            print(last_lines(log), file=sys.stderr)
    gone = "" if answers(url) else f"SGLang is gone: see {folder / 'sglang.log'}. "
    reason = " ".join(sentence.removeprefix("slim-rl: ") for sentence in messages)
    return gone + (reason or f"The script ended with exit code {code}; the reason is above, or in {log}.")
