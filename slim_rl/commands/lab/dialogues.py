"""`slim-rl lab dialogues`: exports the dialogues of logs in formats of other tools."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from slim_rl.commands.options import Games, LogDirs, Logs, all_logs, check_folder, import_games
from slim_rl.dialogue import exchange
from slim_rl.dialogue.log import log_files, read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.errors import DataError
from slim_rl.files import disk_errors, replacing_folder
from slim_rl.formats import count


class Format(StrEnum):
    """Format of the exported files."""

    TRACES = "traces"
    ATIF = "atif"
    INSPECT = "inspect"


def command(
    logs: Logs = None,
    log_dir: LogDirs = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="format: traces, sessions for the Hugging Face Hub; atif, Harbor's trajectories; inspect, logs for inspect view",
        ),
    ] = Format.TRACES,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the files, new or empty")] = Path(
        "exported"
    ),
    game: Games = None,
) -> None:
    """Export the dialogues of logs in a format of other tools: the Hub, Harbor or inspect_ai."""
    import_games(game)
    sources = all_logs(logs, log_dir)
    check_folder(output)
    if output.resolve() == Path.cwd():
        raise DataError(f"--output {output} is the working folder, which would be replaced. Name a new folder.")
    if output.is_dir() and any(output.iterdir()):
        raise DataError(f"--output {output} is not empty. Name a new folder, or empty it.")
    with disk_errors("exported dialogues", output), replacing_folder(output) as folder:
        written = 0
        for path, content in files(sources, form):
            (folder / path).write_bytes(content)
            written += 1
        if not written:
            raise DataError(f"No dialogue is in {', '.join(map(str, sources))}. Name the logs of a run.")
    typer.echo(f"{output}: {count(written, 'file')}")


def files(sources: list[Path], form: Format) -> Iterator[tuple[str, bytes]]:
    """Yields name and content of each file.

    There is one file per dialogue, or for inspect one per run, arm and phase of a log.
    """
    if form is Format.INSPECT:
        yield from _eval_logs(sources)
        return
    for number, dialogue in enumerate(read_log(*sources), 1):
        if form is Format.ATIF:
            yield f"{number:06}.json", orjson.dumps(exchange.trajectory(dialogue), option=orjson.OPT_INDENT_2)
        else:
            yield (
                f"{number:06}.jsonl",
                b"".join(orjson.dumps(each) + b"\n" for each in exchange.session_trace(dialogue)),
            )


def _eval_logs(sources: list[Path]) -> Iterator[tuple[str, bytes]]:
    def key(dialogue: Dialogue) -> tuple[Any, ...]:
        return dialogue.run, dialogue.arm, dialogue.phase, exchange.model(dialogue)

    number = 0
    read: set[Path] = set()
    for source in sources:
        new = [file for file in log_files(source) if file.resolve() not in read]
        if not new:
            continue
        read.update(file.resolve() for file in new)
        written = max(file.stat().st_mtime for file in new)
        for _, group in groupby(sorted(read_log(*new), key=key), key=key):
            number += 1
            log = exchange.eval_log(list(group), datetime.fromtimestamp(int(written), UTC))
            yield f"{log['eval']['created'].replace(':', '-')}_slim-rl_{number:06}.json", orjson.dumps(log)
