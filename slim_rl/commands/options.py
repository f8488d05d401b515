"""Options that several commands share: one name for one thing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from slim_rl import bundled
from slim_rl.environment import environment_class, is_ours
from slim_rl.errors import ConfigError

CONFIG_HELP = f"a YAML file, or one of these names: {', '.join(bundled.names())}"
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help=CONFIG_HELP, show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="override a key: partner.kind=mute (repeatable)", metavar="KEY=VALUE"),
]
Backend = Annotated[str | None, typer.Option(help="trl, slime or verl; the config's by default")]
Workers = Annotated[int, typer.Option(min=1, help="processes that generate games; the games do not depend on it")]
Human = Annotated[
    Path | None,
    typer.Option("--human", "--references", help="DialOp's optimization.jsonl, for a line at human reward"),
]
Logs = Annotated[
    list[Path] | None, typer.Argument(metavar="LOG", help="dialogue logs, or folders of them", show_default=False)
]
LogDirs = Annotated[list[Path] | None, typer.Option("--log-dir", help="the same (repeatable)")]
Paper = Annotated[
    bool, typer.Option("--paper", help="also each table as CSV, LaTeX and Markdown, and each figure as PDF")
]
Games = Annotated[
    list[str] | None,
    typer.Option(
        "--game",
        metavar="DOTTED.PATH",
        help="your own game that the logs come from, such as examples.treasure.Treasure: its code is imported (repeatable)",
    ),
]
Engine = Annotated[
    str, typer.Option(help="what samples a checkpoint: transformers (in this process), sglang or vllm (a server)")
]
ServerAddress = Annotated[
    str | None, typer.Option(metavar="URL", help="URL of a running server; without it one is started")
]
EngineFlags = Annotated[
    str, typer.Option("--engine-args", help="further flags for the server that is started, such as '--tp 2'")
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="dialogues played at once (with a server 1000, otherwise all, by default)")
]
SuitesFolder = Annotated[
    Path | None,
    typer.Option(
        "--suites", metavar="FOLDER", help="suites of your own, as in configs/bench; by default those of slim_rl"
    ),
]

_FILES = (".csv", ".html", ".json", ".jsonl", ".parquet", ".png", ".txt", ".xlsx", ".yaml")


def all_logs(logs: list[Path] | None, log_dirs: list[Path] | None) -> list[Path]:
    """The logs that were named either way. Raises ConfigError if there are none."""
    if found := [*(log_dirs or ()), *(logs or ())]:
        return found
    raise ConfigError(
        "No dialogue logs are named: give the folder that a run wrote them to, such as logs/matching_local."
    )


def words_of(flags: str) -> list[str]:
    """The words of --engine-args. Raises ConfigError if a quotation mark in it is never closed."""
    try:
        return shlex.split(flags)
    except ValueError as error:
        raise ConfigError(
            f"--engine-args {flags} cannot be split into words ({error}): close each quotation mark."
        ) from error


def name_games(games: list[str] | None) -> None:
    """Lets logs name these games: a log by itself imports no code. Raises ConfigError if one cannot be imported."""
    for game in games or ():
        environment_class(game)


def check_folder(path: Path) -> Path:
    """An option's value that names a folder to write. Raises ConfigError if it looks like a file, or is one."""
    if path.suffix.lower() in _FILES or path.is_file():
        raise ConfigError(f"--output {path} is a file, but a folder is written; name a folder.")
    return path


def game_named(environment: str) -> str:
    """What a command that reads logs of this game is told beside them: a log names a game of one's own, and never imports it."""
    return "" if is_ours(environment) else f" --game {environment}"
