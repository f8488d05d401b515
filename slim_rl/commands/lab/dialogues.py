"""`slim-rl lab dialogues`: the dialogues of logs in a format that others read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from slim_rl.commands.options import Games, LogDirs, Logs, all_logs, check_folder, name_games
from slim_rl.dialogue import exchange
from slim_rl.dialogue.log import log_files, read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.errors import DataError
from slim_rl.files import disk_errors, replacing_folder
from slim_rl.formats import count


class Format(StrEnum):
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
            help="traces: sessions for the Hugging Face Hub; atif: Harbor's trajectories; inspect: logs for inspect view",
        ),
    ] = Format.TRACES,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the files, new or empty")] = Path(
        "exported"
    ),
    game: Games = None,
) -> None:
    """Export the dialogues of logs in a format of other tools: the Hub, Harbor or inspect_ai."""
    name_games(game)
    sources = all_logs(logs, log_dir)
    check_folder(output)
    if output.resolve() == Path.cwd():
        raise DataError(f"--output {output} is the folder that you are in, which would be replaced; name a new folder.")
    if output.is_dir() and any(output.iterdir()):
        raise DataError(f"--output {output} is not empty; name a new folder, or remove what is in it.")
    with disk_errors("exported dialogues", output), replacing_folder(output) as folder:
        written = 0
        for path, content in files(sources, form):
            (folder / path).write_bytes(content)
            written += 1
        if not written:
            raise DataError(f"There is no dialogue in {', '.join(map(str, sources))}; name the logs of a run.")
    typer.echo(f"{output}: {count(written, 'file')}")


def files(sources: list[Path], form: Format) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file: one a dialogue, or for inspect one for each run, arm and phase of a log."""
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
    def which(dialogue: Dialogue) -> tuple[Any, ...]:
        return dialogue.run, dialogue.arm, dialogue.phase, exchange.model(dialogue)

    number = 0
    read: set[Path] = set()
    for source in sources:
        new = [file for file in log_files(source) if file.resolve() not in read]
        if not new:
            continue
        read.update(file.resolve() for file in new)
        written = max(file.stat().st_mtime for file in new)
        for _, group in groupby(sorted(read_log(*new), key=which), key=which):
            number += 1
            log = exchange.eval_log(list(group), datetime.fromtimestamp(int(written), UTC))
            yield f"{log['eval']['created'].replace(':', '-')}_slim-rl_{number:06}.json", orjson.dumps(log)
