"""Export of a run's checkpoint as a Hugging Face model: weights, tokenizer and model card. The folder appears atomically.

    backends/NAME/export.py   `checkpoints(run)`: step -> checkpoint, by the number in the checkpoint's own name
                              `write(run, config, checkpoint, folder)`: the model, into an empty folder

The run's config says which backend trained it.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slim_rl import bundled, provenance
from slim_rl.backends.card import model_card
from slim_rl.config import ROOT_KEY, Config, parse_config
from slim_rl.dialogue.log import log_files, read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.errors import DataError, SlimError
from slim_rl.files import disk_errors, replacing_folder
from slim_rl.policies import check_model_folder, is_model_folder
from slim_rl.processes import last_lines, running
from slim_rl.runs import configuration, log_folder_of

_WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True, slots=True)
class Exported:
    """Exported model.

    Attributes:
        backend: who trained it.
        checkpoint: what it was made of.
    """

    backend: str
    checkpoint: Path


def export(
    run: Path, output: Path, step: int | None = None, results: Sequence[Path] = (), overwrite: bool = False
) -> Exported:
    """Writes the model of a run's checkpoint to `output`.

    Args:
        run: the run's folder.
        step: the number in the checkpoint's name; None: the newest.
        results: logs of evaluations, or folders of them, for the card's tables.
        overwrite: whether a model in `output` may be replaced.

    Raises:
        DataError: the folder is no run's, has no such checkpoint, or `output` is not empty (with `overwrite`: holds other things than
            a model).
        SlimError: the checkpoint could not be converted; `output` is as it was.
    """
    config = read_run(run)
    backend = config.train.backend
    check_model_folder(output)
    if not overwrite and output.exists() and any(output.iterdir()):
        raise DataError(f"{output} holds a model: name another folder, or replace it with --overwrite.")
    module = importlib.import_module(f"slim_rl.backends.{backend}.export")
    checkpoints: dict[int, Path] = module.checkpoints(run)
    if not checkpoints:
        raise DataError(f"{run} holds no whole checkpoint yet; train.save_every says how often one is written.")
    if step is not None and step not in checkpoints:
        raise DataError(f"{run} has no checkpoint {step}; it has {', '.join(map(str, sorted(checkpoints)))}.")
    number = max(checkpoints) if step is None else step
    trained = number + (backend == "slime")  # which numbers its rollouts from 0
    before, after = own_results(config, run, trained)
    evaluated = read_results(results)
    start = {name: dialogues for name, dialogues in evaluated.items() if _of_start(config, dialogues)}
    later = {name: dialogues for name, dialogues in evaluated.items() if name not in start}
    with disk_errors("model", output), replacing_folder(output) as scratch:
        module.write(run, config, checkpoints[number], scratch)
        _check_model(scratch, checkpoints[number])
        made = provenance.read(log_folder_of(run, config))
        card = model_card(config, step=trained, results=after | later, before=before | start, made=made)
        (scratch / "README.md").write_text(card, encoding="utf-8")
    return Exported(backend, checkpoints[number])


def read_run(run: Path) -> Config:
    """Reads the config in a run's folder; keys of other plug-ins may stand next to `slim_rl`.

    Raises:
        DataError: the folder has no config.
    """
    path = run / "config.yaml"
    data = configuration(path)
    if data is None:
        raise DataError(
            f"{run} is not a run's folder: it has no config.yaml with a section '{ROOT_KEY}' that can be read; name one that has."
        )
    return parse_config(data, source=str(path))


def read_results(paths: Sequence[Path]) -> dict[str, list[Dialogue]]:
    """Reads the dialogues of evaluation logs, by file name.

    Raises:
        DataError: a path is no log.
    """
    return {file.stem: list(read_log(file)) for file in log_files(*paths)} if paths else {}


def convert(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Runs a trainer's own converter. Raises SlimError with the end of what it said if it fails."""
    with tempfile.NamedTemporaryFile() as output:
        with running(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as process:
            code = process.wait()
        if code:
            print(last_lines(Path(output.name)), file=sys.stderr)
            raise SlimError(f"The checkpoint could not be converted (exit code {code}); the reason is above.")


def _of_start(config: Config, dialogues: Sequence[Dialogue]) -> bool:
    """Returns True if the initial policy played these dialogues, and not a trained one."""

    def named(model: object) -> Path:
        return Path(bundled.model(str(model))).resolve()

    return all(named(d.policy.get("model")) == named(config.policy.model) and not d.step for d in dialogues)


def own_results(config: Config, run: Path, steps: int) -> tuple[dict[str, list[Dialogue]], dict[str, list[Dialogue]]]:
    """Reads the run's own held-out dialogues: before training, and after the given number of steps."""
    log = log_folder_of(run, config) / ("eval.jsonl" if config.train.backend == "slime" else "")
    by_step: dict[int, dict[str, Dialogue]] = {}
    if log.is_file() or any(log.rglob("*.jsonl")):
        for dialogue in read_log(log):
            if dialogue.phase == "eval" and dialogue.run == config.name and dialogue.step is not None:
                by_step.setdefault(dialogue.step, {})[dialogue.id] = dialogue  # played again, the last one counts
    before, after = by_step.get(0), by_step.get(steps)
    return (
        {"before training": [*before.values()]} if before else {},
        {"after training": [*after.values()]} if after else {},
    )


def _check_model(folder: Path, checkpoint: Path) -> None:
    """Raises SlimError if what a converter left is no model that can be loaded by its folder."""
    missing = [] if is_model_folder(folder) else ["config.json"]
    missing += [] if any(any(folder.glob(pattern)) for pattern in _WEIGHTS) else ["weights"]
    missing += [] if (folder / "tokenizer_config.json").exists() else ["tokenizer"]
    if missing:
        raise SlimError(f"The conversion of {checkpoint} left no {', no '.join(missing)}; nothing was exported.")
