"""Callbacks of TRL's trainer: a progress bar, one line of metrics per step, and held-out games in between."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerState, TrainingArguments

from slim_rl import jsonl
from slim_rl.backends.step_line import step_line
from slim_rl.dialogue.measures import TRACKED, batch_metrics
from slim_rl.dialogue.record import Dialogue
from slim_rl.policies.transformers import TransformersPolicy


class StepLine(TrainerCallback):
    """Progress bar, a line per step, and `metrics.jsonl`: one JSON line per step, appended whole.

    A step has the same number as in the dialogue log. Under torchrun rank 0 writes them; TRL's numbers are those of all processes, tokens
    per second are rank 0's.
    """

    def __init__(self, run_dir: Path, policy: TransformersPolicy) -> None:
        self.path, self.policy = run_dir / "metrics.jsonl", policy
        self._bar: tqdm[Any] | None = None
        self._tokens, self._time = 0, 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        state.save_steps = args.save_steps  # a checkpoint's state has its own launch's
        if not state.is_world_process_zero:
            return
        self._bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step", smoothing=0.1)
        self._tokens, self._time = self.policy.tokens_sampled, time.monotonic()
        if self.path.exists():  # a resumed run writes the lines after its checkpoint again
            jsonl.keep_lines(self.path, lambda line: line["step"] < state.global_step)

    def on_log(self, args: TrainingArguments, state: TrainerState, *_: Any, logs: dict[str, Any], **__: Any) -> None:
        if self._bar is None or "reward" not in logs:
            return
        self._bar.update(1)
        now = time.monotonic()
        logs["tokens_per_second"] = (self.policy.tokens_sampled - self._tokens) / max(now - self._time, 1e-9)
        self._tokens, self._time = self.policy.tokens_sampled, now
        trls_first = sorted(logs, key=lambda name: name.startswith(TRACKED))  # of equal names ours counts
        metrics = {name.removeprefix(TRACKED): logs[name] for name in trls_first}
        step = state.global_step - 1  # the last update learned from it; the log counts from 0
        tqdm.write(step_line(step, metrics))
        with jsonl.Appender(self.path, "metrics") as file:
            file.append({"step": step, **metrics})

    def on_train_end(self, *_: Any, **__: Any) -> None:
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

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        step = state.global_step
        if not args.eval_steps or not step or step % args.eval_steps:
            return
        if metrics := batch_metrics(self.evaluate(step)):
            tqdm.write(step_line(step, metrics, played="held-out"))
            self.tell({f"eval_{TRACKED}{name}": value for name, value in metrics.items()})
