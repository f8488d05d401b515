"""Dialogue log: one JSON line per dialogue, annotated, in whole lines (see `jsonl`). One process writes a file.

A line without annotations, or with those of another version of the game's annotator, is annotated when it is read.

A run that resumes at step k plays the steps from k on again. `from_step=k` removes their earlier lines and the held-out games of the
weights that are lost; otherwise the last line of a dialogue counts.
"""

import asyncio
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from slim_rl import jsonl, provenance
from slim_rl.dialogue.record import ANNOTATIONS, FORMAT, READABLE, Dialogue
from slim_rl.environment import game_of
from slim_rl.errors import DataError, SlimWarning
from slim_rl.measured import measured


class DialogueLog(jsonl.Appender):
    """Open log file, with the code's version in its folder (`provenance`). Use it in a `with` statement, or `close` it.

    Args:
        path: file, made with its folders if missing.
        from_step: step at which a run resumes: its lines of training steps from it on, and of held-out games after more steps, are removed; None:
            all lines stay.
        seed: seed of that run, in a file that may hold lines of others; None: all lines are its own.
        tokens: whether to write token ids, masks and logprobs too.

    Raises:
        DataError: the file cannot be written, or `from_step` is given and a line before its last cannot be read.
    """

    def __init__(
        self, path: str | Path, from_step: int | None = None, tokens: bool = False, seed: int | None = None
    ) -> None:
        self.tokens = tokens
        if from_step is not None and Path(path).is_file():
            jsonl.keep_lines(
                Path(path),
                lambda line: (
                    not isinstance(line, dict)
                    or (line.get("step") or 0) < from_step + (line.get("phase") != "train")
                    or (seed is not None and _seed(line) != seed)
                ),
            )
        super().__init__(path, "dialogue log")
        provenance.record(self.path.parent)

    def append(self, dialogue: Dialogue) -> None:
        """Writes the dialogue's line, annotated.

        Raises:
            DataError: the file cannot be written, or the dialogue holds something that is not JSON.
        """
        if dialogue.annotator_version is None:
            annotate(dialogue)
        try:
            super().append(dialogue.to_dict(tokens=self.tokens))
        except TypeError as error:
            raise DataError(
                f"{dialogue.id} cannot be logged ({error}): an action or state of {dialogue.environment}, or a player's `identity`, is not "
                "JSON. Use dicts, lists, strings and numbers there."
            ) from error


def annotate(dialogue: Dialogue, again: bool = True) -> None:
    """Fills in the annotations of a dialogue's turns, by its game's annotator; warns if that fails.

    Args:
        again: whether to annotate a dialogue that has the annotations of the annotator's version already.
    """
    game = game_of(dialogue.environment)
    if game is None:
        if again:
            warnings.warn(
                f"{dialogue.id}: not annotated; nothing here uses its game {dialogue.environment}.", SlimWarning, 2
            )
        return
    made = measured(game)
    if not again and dialogue.annotator_version == made.annotator_version:
        return
    dialogue.columns, dialogue.annotator_version = {}, None
    try:
        made.annotate(dialogue)
        jsonl.encode(record := dialogue.to_dict(tokens=False))
        for turn, read in zip(dialogue.turns, Dialogue.from_dict(record).turns, strict=True):  # as a log is read
            for name in ANNOTATIONS:
                setattr(turn, name, getattr(read, name))
        dialogue.annotator_version = made.annotator_version
    except Exception as error:  # a faulty annotator must not cost a dialogue: log it without annotations
        dialogue.columns = {}
        for turn in dialogue.turns:
            turn.clear_annotations()
        warnings.warn(f"{dialogue.id}: not annotated; {type(error).__name__}: {error}", SlimWarning, stacklevel=2)


async def annotate_beside(dialogues: Iterable[Dialogue]) -> None:
    """Annotates dialogues in a thread; on an 8×8 board one would block this event loop for about 10 ms."""
    loop = asyncio.get_running_loop()
    for dialogue in dialogues:
        await loop.run_in_executor(_BESIDE, annotate, dialogue)


_BESIDE = ThreadPoolExecutor(1, "annotate")  # with more threads the event loop would wait for each of them in turn


def read_log(*paths: str | Path) -> Iterator[Dialogue]:
    """Yields the dialogues of log files, or of every *.jsonl below folders, in order, with current annotations.

    Of lines with equal folder, seed, run, arm, phase, step and id the last counts. An incomplete last line is left out, with a warning.

    Raises:
        DataError: a path does not exist, a folder has no *.jsonl, or a line (named by file and number) is not a dialogue's.
    """
    files = log_files(*paths)
    folders = [file.resolve().parent for file in files]
    last: dict[tuple[Any, ...], tuple[int, int]] = {}
    for number, file in enumerate(files):
        for at, data in _lines(file):
            last[_key(folders[number], data)] = (number, at)
    for number, file in enumerate(files):
        for at, data in _lines(file, torn="skip"):
            # a log that is being written may have grown meanwhile
            if last.get(_key(folders[number], data)) == (number, at):
                try:
                    dialogue = of_line(data)
                except ValueError as error:
                    raise DataError(
                        f"{file}, line {at}: not a dialogue's line ({error}); remove the line, or restore the file."
                    ) from error
                yield dialogue


def of_line(data: dict[str, Any]) -> Dialogue:
    """Returns the dialogue of a line, with current annotations. Raises ValueError if the line has another form."""
    dialogue = Dialogue.from_dict(data)
    annotate(dialogue, again=False)
    return dialogue


def log_files(*paths: str | Path) -> list[Path]:
    """Returns the files themselves and every *.jsonl below the folders, each once; hidden files and folders are left out.

    Raises DataError if a path does not exist, or if there is no file.
    """
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"There is no dialogue log {path}; give a *.jsonl file, or its folder.")
        for file in sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]:
            # copies by editors and servers of files (@eaDir), the trash (.Trash, #recycle)
            hidden = any(part[0] in ".@#$" for part in file.relative_to(path).parts)
            if (file.is_file() and not hidden) or file == path:  # neither a broken link nor a folder of that name
                files.setdefault(file.resolve(), file)
    if not files:
        where = ", ".join(map(str, paths))
        raise DataError(f"There is no *.jsonl in {where}; give the folder that a run wrote its dialogue log to.")
    return list(files.values())


def first_trained(folder: Path) -> dict[str, Any] | None:
    """Returns the state of a game that a run's log of training begins with; None without such a log."""
    first = (next(_lines(file, torn="skip"), (0, {}))[1] for file in sorted(folder.glob("*.jsonl")))
    return next((line["game_state"] for line in first if line.get("phase") == "train"), None)


def _key(folder: Path, data: dict[str, Any]) -> tuple[Any, ...]:
    return folder, str(_seed(data)), *(str(data.get(name)) for name in ("run", "arm", "phase", "step", "id", "attempt"))


def _seed(line: dict[str, Any]) -> Any:
    """Returns the seed of a line's run; None in lines without settings."""
    settings = line.get("settings")
    return settings.get("seed") if isinstance(settings, dict) else None


def _lines(file: Path, torn: Literal["warn", "skip"] = "warn") -> Iterator[tuple[int, dict[str, Any]]]:
    for number, data in jsonl.read(file, "dialogue log", torn=torn):
        if not isinstance(data, dict) or not {"id", "turns", "game_id"} <= data.keys():
            raise DataError(
                f"{file}, line {number}: not a dialogue's line; keep other *.jsonl files out of the log folder."
            )
        if (version := data.get("format", FORMAT)) not in READABLE:
            raise DataError(
                f"{file}, line {number}: format={version!r}, but this slim_rl reads formats {READABLE[0]} to {FORMAT}; use the one that wrote it."
            )
        yield number, data
