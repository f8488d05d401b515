"""Steps of a run on the screen, as its log of dialogues grows: slime's own output is long, and goes to a file."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slim_rl import jsonl
from slim_rl.backends import say
from slim_rl.backends.step_line import step_line
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.record import Dialogue

_SECONDS = 1.0


@contextlib.contextmanager
def told(log: Path, dialogues: int, done: int, after: Callable[[], None]) -> Iterator[None]:
    """Within the block, prints a line per step whose dialogues are in `log`, and calls `after`.

    A resumed run removes the lines of the steps that it plays again before it writes: what the log holds at first is not printed.

    Args:
        dialogues: number of dialogues per step.
        done: the step played last before, numbered from 0; -1: none.
    """
    over = threading.Event()
    size = log.stat().st_size if log.exists() else 0

    def show() -> None:
        nonlocal done, size
        if not log.exists() or log.stat().st_size == size:
            return
        size, steps = log.stat().st_size, defaultdict[int, list[Any]](list)
        for line in jsonl.scan(log):
            if line.data is not None and (line.data.get("step") or 0) > done:
                steps[line.data["step"]].append(line.data)
        for step, lines in sorted(steps.items()):
            if len(lines) == dialogues:
                done = step
                say(step_line(step, batch_metrics(list(map(Dialogue.from_dict, lines)))))
                after()

    def follow() -> None:
        while not over.wait(_SECONDS):
            show()

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()
        show()
        after()
