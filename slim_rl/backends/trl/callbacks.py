"""What TRL's trainer tells of itself while it runs: one progress bar, one line of metrics a step, checkpoints that are whole."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from slim_rl.files import write_atomically
from slim_rl.policies.transformers import TransformersPolicy

_MARK = "COMPLETE"

# (name in TRL's or our metrics, name on the line, format)
_SHOWN = (
    ("reward", "reward", ".3f"),
    ("questions", "questions", ".2f"),
    ("agreed", "agreed", ".0%"),
    ("valid_proposals", "valid proposals", ".0%"),
    ("failed", "failed", ".0%"),
    ("entropy", "entropy", ".3f"),
    ("kl", "kl", ".4f"),
    ("tokens_per_second", "tok/s", ".0f"),
)


class StepLine(TrainerCallback):
    """A progress bar, a line a step, and `metrics.jsonl`: one JSON line a step, appended whole."""

    def __init__(self, run_dir: Path, policy: TransformersPolicy) -> None:
        self.path, self.policy = run_dir / "metrics.jsonl", policy
        self._bar: tqdm[Any] | None = None
        self._tokens, self._time = 0, 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step", smoothing=0.1)
        self._tokens, self._time = self.policy.tokens_sampled, time.monotonic()
        _drop_from(self.path, state.global_step)

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
        shown = [f"{label} {logs[name]:{form}}" for name, label, form in _SHOWN if logs.get(name) is not None]
        stops = [f"{name.removeprefix('stop/')} {logs[name]:.0%}" for name in sorted(logs) if name.startswith("stop/")]
        tqdm.write(f"step {state.global_step:>4}  " + "  ".join([*shown, *stops]))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **logs}) + "\n")

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._bar is not None:
            self._bar.close()


class MarkWhole(TrainerCallback):
    """Marks a checkpoint once all of it is written; one without the mark is a torn one and is not resumed from."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        (Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / _MARK).touch()


def last_whole_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint below `folder`; torn ones are removed."""
    whole: dict[int, Path] = {}
    for checkpoint in folder.glob("checkpoint-*"):
        if (checkpoint / _MARK).exists():
            whole[int(checkpoint.name.rpartition("-")[2])] = checkpoint
        else:
            shutil.rmtree(checkpoint)
    return whole[max(whole)] if whole else None


def _drop_from(path: Path, step: int) -> None:
    """Takes off lines of steps after `step`: a resumed run writes them anew."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except ValueError:  # a torn last line
            continue
    write_atomically(path, "".join(f"{line}\n" for line in kept))
