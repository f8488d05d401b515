"""A run's checkpoint as a Hugging Face model: weights, tokenizer, and a card that says what it is. The folder appears whole or not
at all.

    backends/NAME/export.py   `checkpoints(run)`: step -> checkpoint, by the number in the checkpoint's own name
                              `write(run, config, checkpoint, folder)`: the model, into an empty folder

Which backend trained a run is seen from what lies in its folder.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from slim_rl.backends.card import model_card
from slim_rl.config import ROOT_KEY, Config, parse_config
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.errors import DataError, SlimError
from slim_rl.files import disk_errors, replacing_folder
from slim_rl.processes import running

_WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True, slots=True)
class Exported:
    """What was exported.

    Attributes:
        folder: where it is.
        backend: who trained it.
        checkpoint: what it was made of.
    """

    folder: Path
    backend: str
    checkpoint: Path


def export(run: Path, output: Path, step: int | None = None, results: Sequence[Path] = ()) -> Exported:
    """Writes the model of a run's checkpoint to `output`.

    Args:
        run: the run's folder.
        step: the number in the checkpoint's name; None: the newest.
        results: logs of evaluations, or folders of them, for the card's table.

    Raises:
        DataError: the folder is no run's, has no such checkpoint, or `output` holds other things than a model.
        SlimError: the checkpoint could not be converted; `output` is as it was.
    """
    from slim_rl.policies.transformers import check_model_folder

    config = read_run(run)
    backend = backend_of(run)
    check_model_folder(output)
    module = importlib.import_module(f"slim_rl.backends.{backend}.export")
    found: dict[int, Path] = module.checkpoints(run)
    if not found:
        raise DataError(f"{run} holds no whole checkpoint yet; train.save_every says how often one is written.")
    if step is not None and step not in found:
        raise DataError(f"{run} has no checkpoint {step}; it has {', '.join(map(str, sorted(found)))}.")
    number = max(found) if step is None else step
    table = {**_own_results(config, run, backend, number), **read_results(results)}
    with disk_errors("model", output), replacing_folder(output) as scratch:
        module.write(run, config, found[number], scratch)
        _check_model(scratch, found[number])
        card = model_card(config, backend=backend, step=updates(backend, number), results=table)
        (scratch / "README.md").write_text(card, encoding="utf-8")
    return Exported(output, backend, found[number])


def updates(backend: str, number: int) -> int:
    """Updates that the checkpoint of this number has had: slime numbers its rollouts from 0."""
    return number + 1 if backend == "slime" else number


def read_run(run: Path) -> Config:
    """The configuration in a run's folder, where other plug-ins' keys may stand beside ours. Raises DataError if there is none."""
    path = run / "config.yaml"
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(
            f"{run} is not a run's folder ({getattr(error, 'strerror', None) or 'its config.yaml cannot be read'}: {path}); "
            "name the folder that holds config.yaml."
        ) from error
    if not isinstance(data, dict) or ROOT_KEY not in data:
        raise DataError(f"{path} is not the config of a run: it has no '{ROOT_KEY}' section.")
    return parse_config(data[ROOT_KEY], source=str(path))


def backend_of(run: Path) -> str:
    """Who trained a run: trl, slime or verl."""
    if (run / "verl.yaml").exists() or any((run / "checkpoints").glob("global_step_*")):
        return "verl"
    if (run / "latest_checkpointed_iteration.txt").exists() or any(run.glob("iter_*")) or (run / "hf").is_dir():
        return "slime"
    return "trl"


def numbered(folder: Path, prefix: str) -> dict[int, Path]:
    """The folders `folder`/`prefix`N by N."""
    found = {path.name.removeprefix(prefix): path for path in folder.glob(f"{prefix}*") if path.is_dir()}
    return {int(number): path for number, path in found.items() if number.isascii() and number.isdigit()}


def read_results(paths: Sequence[Path]) -> dict[str, list[Dialogue]]:
    """The dialogues of evaluation logs by the names of their files. Raises DataError for a path that is no log."""
    results: dict[str, list[Dialogue]] = {}
    for path in paths:
        files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
        if not files:
            raise DataError(f"There is no *.jsonl in {path}; give the folder that slim-rl evaluate wrote.")
        results |= {file.stem: list(read_log(file)) for file in files}
    return results


def convert(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Runs a trainer's own converter. Raises SlimError with the end of what it said if it fails."""
    with tempfile.TemporaryFile() as output:
        with running(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as process:
            code = process.wait()
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    if code:
        print("\n".join(said.splitlines()[-15:]), file=sys.stderr)
        raise SlimError(f"The checkpoint could not be converted (exit code {code}); the reason is above.")


def _own_results(config: Config, run: Path, backend: str, number: int) -> dict[str, list[Dialogue]]:
    """The run's own held-out dialogues: before training, and at this checkpoint."""
    if backend == "trl":
        logs = [config.log.dir / config.name]
    else:
        logs = [run / config.log.dir / "eval.jsonl"] if backend == "slime" else [run / config.log.dir]
    by_step: dict[int, list[Dialogue]] = {}
    for log in logs:
        if log.exists() and (log.is_file() or any(log.rglob("*.jsonl"))):
            for dialogue in read_log(log):
                if dialogue.phase == "eval" and dialogue.run == config.name and dialogue.step is not None:
                    by_step.setdefault(dialogue.step, []).append(dialogue)
    named = {"before training": by_step.get(0), "after training": by_step.get(number) if number else None}
    return {name: dialogues for name, dialogues in named.items() if dialogues}


def _is_model(folder: Path) -> bool:
    try:
        described = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(described, dict) and "model_type" in described


def _check_model(folder: Path, checkpoint: Path) -> None:
    """Raises SlimError if what a converter left is no model that can be loaded by its folder."""
    missing = [] if _is_model(folder) else ["config.json"]
    missing += [] if any(any(folder.glob(pattern)) for pattern in _WEIGHTS) else ["weights"]
    missing += [] if (folder / "tokenizer_config.json").exists() else ["tokenizer"]
    if missing:
        raise SlimError(f"The conversion of {checkpoint} left no {', no '.join(missing)}; nothing was exported.")
