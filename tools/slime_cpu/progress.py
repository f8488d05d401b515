"""The steps of a run on the screen, as its log of dialogues grows: slime's own output is long, and goes to a file."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from slim_rl.backends import say
from slim_rl.backends.step_line import step_line
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.record import Dialogue

_SECONDS = 1.0


class _Steps:
    """Reads whole lines where it stopped before. A run that resumes writes the file anew, without the steps that it plays again."""

    def __init__(self, log: Path, dialogues: int, done: int) -> None:
        self.log, self.dialogues, self.done = log, dialogues, done
        self.file, self.offset = self._file(), log.stat().st_size if log.exists() else 0
        self.step: list[Dialogue] = []

    def read(self) -> Iterator[str]:
        """A line a step that has come since."""
        if self.file != (now := self._file()):
            self.file, self.offset, self.step = now, 0, []
        if now is None:
            return
        with self.log.open("rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                yield from self._add(orjson.loads(line))

    def _add(self, data: dict[str, Any]) -> Iterator[str]:
        dialogue = Dialogue.from_dict(data)
        if dialogue.step is None or dialogue.step <= self.done:
            return
        self.step.append(dialogue)
        if len(self.step) == self.dialogues:
            self.done = dialogue.step
            yield step_line(self.done, batch_metrics(self.step))
            self.step = []

    def _file(self) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return self.log.stat().st_ino
        return None


@contextlib.contextmanager
def told(log: Path, dialogues: int, done: int, after: Callable[[], None]) -> Iterator[None]:
    """Within the block, prints a line per step whose dialogues are in `log`, and calls `after`.

    Args:
        dialogues: of a step.
        done: the step played last before, numbered from 0; -1: none.
    """
    over, steps = threading.Event(), _Steps(log, dialogues, done)

    def show() -> None:
        for line in steps.read():
            say(line)
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
