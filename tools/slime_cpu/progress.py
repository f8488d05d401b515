"""Steps of a run on the screen, as its log of dialogues and slime's output grow: that output is long, and goes to a file."""

import contextlib
import re
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
# slime prints a step's seconds in two parts, such as "perf 1: {'perf/train_time': 12.5}": of playing, and of the rest once it has trained
_PERF = re.compile(rb"\bperf (\d+): \{(.*)\}")
_TIME = re.compile(rb"'perf/(\w+)_time': (?:np\.float64\()?(\d[\d.e+-]*)")
_SPENT = {"rollout": "playing", "train": "training", "update_weights": "new weights", "save_model": "saving"}


@contextlib.contextmanager
def told(log: Path, output: Path, dialogues: int, done: int, after: Callable[[], None]) -> Iterator[None]:
    """Within the block, prints a line per step whose dialogues are in `log`, and calls `after`; and one on where its seconds went.

    A resumed run removes the lines of the steps that it plays again before it writes: what the log holds at first is not printed.

    Args:
        output: slime's output.
        dialogues: number of dialogues per step.
        done: the step played last before, numbered from 0; -1: none.
    """
    over = threading.Event()
    size = log.stat().st_size if log.exists() else 0
    spent = seconds(output)

    def show() -> None:
        trained = list(spent())  # read first: the dialogues of what has been trained are in the log by then
        played()
        for line in trained:
            say(line)

    def played() -> None:
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


def seconds(output: Path) -> Callable[[], Iterator[str]]:
    """Returns a function that reads on in slime's output, and yields a line per step trained since.

    New weights and a save are those before the step: slime measures from the end of one training to the end of the next.
    """
    place, times = output.stat().st_size if output.exists() else 0, defaultdict[int, dict[str, float]](dict)

    def read() -> Iterator[str]:
        nonlocal place
        if not output.exists():
            return
        with output.open("rb") as file:
            file.seek(place)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written
                    return
                place += len(line)
                if (found := _PERF.search(line)) is None:
                    continue
                step = int(found[1])
                times[step] |= {name.decode(): float(value) for name, value in _TIME.findall(found[2])}
                if b"perf/train_time" in found[2]:
                    parts = (
                        f"{times[step][name]:.1f} s {what}" for name, what in _SPENT.items() if name in times[step]
                    )
                    yield f"step {step:>4}: {', '.join(parts)}"

    return read
