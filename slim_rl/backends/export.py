"""Export of a run's checkpoint as a Hugging Face model: weights, tokenizer and model card. The folder appears atomically.

    backends/NAME/export.py   `checkpoints(run)`: step -> checkpoint, by the number in the checkpoint's own name
                              `write(run, config, checkpoint, folder)`: the model, into an empty folder

The run's config says which backend trained it.
"""

import importlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from slim_rl import provenance
from slim_rl.backends.card import model_card
from slim_rl.config import ROOT_KEY, Config, parse_config
from slim_rl.config.section import without_gone
from slim_rl.dialogue.log import log_files, read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.errors import DataError, SlimError
from slim_rl.files import disk_errors, replacing_folder
from slim_rl.policies import check_model_folder, is_model_folder
from slim_rl.processes import running
from slim_rl.runs import RunFolder, configuration


def export(
    run: Path, output: Path, step: int | None = None, results: Sequence[Path] = (), overwrite: bool = False
) -> Path:
    """Writes the model of a run's checkpoint to `output`. Returns the checkpoint.

    Args:
        run: the run's folder.
        step: the number in the checkpoint's name; None: the newest.
        results: logs of evaluations, or folders of them, for the card's table.
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
    number = max(checkpoints, default=0) if step is None else step
    if number not in checkpoints:
        there = ", ".join(map(str, sorted(checkpoints))) or "no whole checkpoint yet"
        raise DataError(f"{run} has no checkpoint {number}; it has {there}.")
    trained = number + (backend == "slime")  # which numbers its rollouts from 0
    evaluated = {file.stem: list(read_log(file)) for file in log_files(*results)} if results else {}
    with disk_errors("model", output), replacing_folder(output) as scratch:
        module.write(run, config, checkpoints[number], scratch)
        if not is_model_folder(scratch):
            raise SlimError(f"The conversion of {checkpoints[number]} left no model; nothing was exported.")
        made = provenance.read(RunFolder(config, run).logs)
        card = model_card(config, step=trained, results=own_evaluations(config, run, trained) | evaluated, made=made)
        (scratch / "README.md").write_text(card, encoding="utf-8")
    return checkpoints[number]


def read_run(run: Path) -> Config:
    """Reads the config in a run's folder; keys of other plug-ins may stand next to `slim_rl`. Raises DataError without it."""
    path = run / "config.yaml"
    data = configuration(path)
    if data is None:
        raise DataError(
            f"{run} is not a run's folder: it has no config.yaml with a section '{ROOT_KEY}' that can be read; name one that has."
        )
    return parse_config(without_gone(data)[0], source=str(path))


def convert(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Runs a trainer's own converter. Raises SlimError if it fails."""
    with running(command, env=environment, stdout=subprocess.DEVNULL) as process:
        code = process.wait()
    if code:
        raise SlimError(f"The checkpoint could not be converted (exit code {code}); the reason is above.")


def own_evaluations(config: Config, run: Path, steps: int) -> dict[str, list[Dialogue]]:
    """Reads the run's own held-out dialogues: "before training", and "after training" for the given number of steps."""
    log = RunFolder(config, run).logs / ("eval.jsonl" if config.train.backend == "slime" else "")
    played: dict[str, dict[str, Dialogue]] = {"before training": {}, "after training": {}}
    if log.is_file() or any(log.rglob("*.jsonl")):
        for dialogue in read_log(log):
            if dialogue.phase == "eval" and dialogue.run == config.name and dialogue.step in (0, steps):
                # of several the last counts
                played["after training" if dialogue.step else "before training"][dialogue.id] = dialogue
    return {name: list(dialogues.values()) for name, dialogues in played.items() if dialogues}
