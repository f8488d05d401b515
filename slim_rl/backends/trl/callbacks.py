"""Callbacks of TRL's trainer: a progress bar, one line of metrics per step, atomic checkpoints."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from slim_rl import jsonl
from slim_rl.backends.checkpoints import numbered
from slim_rl.backends.step_line import played_step, step_line
from slim_rl.backends.trl.trackers import HELD_OUT
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.tracked import batch_metrics
from slim_rl.errors import DataError, SlimWarning
from slim_rl.files import disk_errors, read_object, write_atomically
from slim_rl.policies.transformers import TransformersPolicy

_MARK = "COMPLETE"
ROOM = "make room and run the same command: it continues from the last whole checkpoint"


class StepLine(TrainerCallback):
    """Progress bar, a line per step, and `metrics.jsonl`: one JSON line per step, appended whole.

    A step has the same number as in the dialogue log. Under torchrun rank 0 writes them; TRL's numbers are those of all processes, tokens
    per second are rank 0's.
    """

    def __init__(self, run_dir: Path, policy: TransformersPolicy) -> None:
        self.path, self.policy = run_dir / "metrics.jsonl", policy
        self._bar: tqdm[Any] | None = None
        self._tokens, self._time = 0, 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        self._bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step", smoothing=0.1)
        self._tokens, self._time = self.policy.tokens_sampled, time.monotonic()
        if self.path.exists():  # a resumed run writes the lines after its checkpoint again
            jsonl.keep_lines(self.path, lambda line: line["step"] < state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.update(1)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if self._bar is None or not logs or "reward" not in logs:
            return
        now = time.monotonic()
        logs["tokens_per_second"] = (self.policy.tokens_sampled - self._tokens) / max(now - self._time, 1e-9)
        self._tokens, self._time = self.policy.tokens_sampled, now
        step = played_step(state.global_step)
        tqdm.write(step_line(step, logs))
        with jsonl.Appender(self.path, "metrics") as file:
            file.append({"step": step, **logs})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._bar is not None:
            self._bar.close()


class HeldOut(TrainerCallback):
    """Evaluation on held-out games every `eval_steps` steps.

    It runs before the next step begins, after the step before it is logged and saved. So a resumed run first plays what is missing. After the
    last step nothing is played here.

    Args:
        evaluate: plays the games with the weights after a number of steps; returns their dialogues in rank 0.
        tell: logs numbers to the trackers.
    """

    def __init__(
        self, evaluate: Callable[[int], Sequence[Dialogue]], tell: Callable[[dict[str, float]], object]
    ) -> None:
        self.evaluate, self.tell = evaluate, tell

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        step = state.global_step
        if not args.eval_steps or not step or step % args.eval_steps:
            return
        if metrics := batch_metrics(self.evaluate(step)):
            tqdm.write(step_line(step, metrics, played="held-out"))
            self.tell({HELD_OUT + name: value for name, value in metrics.items()})


class MarkWhole(TrainerCallback):
    """Marker of complete checkpoints.

    A checkpoint is marked after all of it is written; only then those before the last `keep` are removed. A checkpoint without the mark,
    or without a file that the mark lists (a disk that failed), is incomplete and is not resumed from.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # every process writes a part of it
        if not state.is_world_process_zero:
            return
        folder = Path(str(args.output_dir))
        mark = folder / f"checkpoint-{state.global_step}" / _MARK
        with disk_errors("checkpoint", mark.parent, ROOM):
            write_atomically(mark, json.dumps(_written(mark.parent)))
        for _, checkpoint in sorted(whole_checkpoints(folder).items())[: -self.keep]:
            (checkpoint / _MARK).unlink()  # first, so that a half-removed one is not taken for whole
            shutil.rmtree(checkpoint)


def last_whole_checkpoint(folder: Path, remove_torn: bool = True) -> Path | None:
    """Returns the newest complete checkpoint below `folder`, and removes incomplete ones, but nothing that a run does not write."""
    whole = whole_checkpoints(folder, contents=True)
    for step, checkpoint in numbered(folder, "checkpoint-").items():
        if remove_torn and step not in whole:
            shutil.rmtree(checkpoint)
    return whole[max(whole)] if whole else None


def is_whole(folder: Path, step: int) -> bool:
    """Returns True if the checkpoint of `step` is complete."""
    return step in whole_checkpoints(folder)


def whole_checkpoints(folder: Path, contents: bool = False) -> dict[int, Path]:
    """Returns the complete checkpoints by their step, and warns of each that has been damaged since it was complete.

    Args:
        contents: compare the files' contents too, which reads all of them.
    """
    checkpoints = {step: path for step, path in numbered(folder, "checkpoint-").items() if (path / _MARK).exists()}
    lost = {step: what for step, path in sorted(checkpoints.items()) if (what := _lost(path, contents))}
    whole = {step: path for step, path in checkpoints.items() if step not in lost}
    for step, what in lost.items():
        before = max((number for number in whole if number < step), default=None)
        instead = (
            "there is no whole one before it" if before is None else f"{whole[before]} is the last whole one before it"
        )
        warnings.warn(f"{checkpoints[step]} is damaged and not used: {what}; {instead}.", SlimWarning, stacklevel=2)
    return whole


def _written(checkpoint: Path) -> dict[str, tuple[int, str]]:
    """Returns the size and the digest of each file."""
    files = (path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name != _MARK)
    return {str(path.relative_to(checkpoint)): (path.stat().st_size, _digest(path)) for path in files}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()


def _lost(checkpoint: Path, contents: bool) -> str:
    """Returns the file of a marked checkpoint that is not as it was written; empty if there is none."""
    try:
        for name, written in read_object(checkpoint / _MARK).items():
            size, digest = (written, None) if isinstance(written, int) else written  # of 0.1.0: sizes alone
            path = checkpoint / name
            now = path.stat().st_size if path.exists() else 0
            if now != size:
                return f"{name} has {now:,} of {size:,} bytes"
            if contents and digest and _digest(path) != digest:
                return f"{name} has other contents than were written"
    except (DataError, OSError, TypeError, ValueError):
        return f"its {_MARK} cannot be read"
    return ""
