"""Annotates dialogues in separate processes, so that neither an event loop nor a training step waits for it.

    a dialogue is handed over the moment it ends; by the time its step is logged, nothing is left to wait for
    whatever happens to a process, the dialogue is annotated: if need be, here

A process is told a dialogue by a line of JSON and answers with its annotations. It ends with its standard input, so it never
outlives the program that started it, and it imports nothing of that program's main module.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from slim_rl import jsonl
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.record import ANNOTATIONS, Dialogue
from slim_rl.environment import environment_class, game_of
from slim_rl.errors import SlimError

log = logging.getLogger(__name__)

# One process for so many processors, and at most so many: each annotates hundreds of dialogues a second.
_CPUS, _MOST = 8, 4


class Annotator:
    """Annotates dialogues in the background. Close it where the program goes on without it.

    Args:
        processes: how many; by default one for every eight processors, at least one and at most four. They start when needed.
    """

    def __init__(self, processes: int | None = None) -> None:
        number = processes or min(_MOST, max(1, (os.cpu_count() or 1) // _CPUS))
        self._threads = ThreadPoolExecutor(number, "annotator")  # a thread for each process: it only waits
        self._own = threading.local()
        self._started: list[subprocess.Popen[bytes]] = []

    def submit(self, dialogue: Dialogue) -> Future[None]:
        """Begins to annotate `dialogue`, which must not change until the future is done."""
        return self._threads.submit(self._annotate, dialogue)

    def close(self) -> None:
        """Ends the processes, after what was submitted."""
        self._threads.shutdown()
        for process in self._started:
            process.communicate()
        self._started.clear()

    def _annotate(self, dialogue: Dialogue) -> None:
        broken, known = getattr(self._own, "broken", False), game_of(dialogue.environment) is not None
        answer = None
        if known and not broken:
            with suppress(TypeError):  # what is no JSON is not asked about; the log says what it is
                answer = self._ask(jsonl.encode(dialogue.to_dict(tokens=False)))
        if answer is None:
            annotate(dialogue)
            return
        dialogue.instrument, dialogue.columns = answer["instrument"], answer["columns"]
        for turn, values in zip(dialogue.turns, answer["turns"], strict=True):
            for name, value in values.items():
                setattr(turn, name, _with_tuples(value))

    def _ask(self, line: bytes) -> dict[str, Any] | None:
        """What `main` answers. None if this thread's process gives no answer."""
        try:
            process = self._process()
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            answer: dict[str, Any] | None = orjson.loads(process.stdout.readline())
            return answer
        except (OSError, ValueError) as error:  # it could not start, or died
            self._own.broken = True
            log.warning(
                "A process that annotates dialogues is gone; the training process goes on without it (%s).", error
            )
            return None

    def _process(self) -> subprocess.Popen[bytes]:
        if not hasattr(self._own, "process"):
            # With this program's path, because the game may be a file beside it; and out of reach of Ctrl-C.
            path = os.pathsep.join(str(Path(folder).absolute()) for folder in sys.path)
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,
            )
            self._own.process = process
            self._started.append(process)
        process = self._own.process
        return process


@cache
def shared() -> Annotator:
    """This program's own, for all that it plays; it ends with it."""
    return Annotator()


def _with_tuples(value: Any) -> Any:
    """An annotation as the game gave it: JSON has lists for tuples."""
    return [tuple(item) if isinstance(item, list) else item for item in value] if isinstance(value, list) else value


def main() -> None:
    """Annotates the dialogues on standard input, a line each, until it ends. It answers each with the annotator's version, the
    dialogue's columns and the turns' annotations by name, or with null if it could not.
    """
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # what a game prints goes elsewhere
        for line in sys.stdin.buffer:
            try:
                dialogue = Dialogue.from_dict(orjson.loads(line))
                with suppress(SlimError):
                    environment_class(dialogue.environment)  # which the program that asks has imported
                annotate(dialogue)
                turns = [{name: getattr(turn, name) for name in ANNOTATIONS} for turn in dialogue.turns]
                said = jsonl.encode({"instrument": dialogue.instrument, "columns": dialogue.columns, "turns": turns})
            except Exception:
                log.exception("a dialogue was not annotated")
                said = b"null"
            out.write(said + b"\n")
            out.flush()


if __name__ == "__main__":
    main()
