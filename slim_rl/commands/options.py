"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from slim_rl import bundled
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError

CONFIG_HELP = f"YAML file, run's folder, or one of these names: {', '.join(bundled.names())}"
Strings = list[str] | None
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help=CONFIG_HELP, show_default=False)]
Overrides = Annotated[
    Strings, typer.Option("--set", "-s", help="override a key: partner.kind=mute (repeatable)", metavar="KEY=VALUE")
]
Backend = Annotated[str | None, typer.Option(help="trl, slime or verl; the config's by default")]
Workers = Annotated[int, typer.Option(min=1, help="processes; any number generates the same games")]
Human = Annotated[
    Path | None,
    typer.Option("--human", "--references", exists=True, help="DialOp's optimization.jsonl, to compare with people"),
]
Logs = Annotated[
    list[Path] | None, typer.Argument(metavar="LOG", help="dialogue logs, or folders of them", show_default=False)
]
LogDirs = Annotated[list[Path] | None, typer.Option("--log-dir", help="same as LOG (repeatable)")]
Paper = Annotated[bool, typer.Option("--paper", help="write each table as CSV and each figure as PDF, too")]
Games = Annotated[
    Strings,
    typer.Option("--game", metavar="DOTTED.PATH", help="import this custom environment of the logs (repeatable)"),
]

_FILES = (".csv", ".html", ".json", ".jsonl", ".parquet", ".png", ".txt", ".xlsx", ".yaml")


def changes_of(overrides: Strings, backend: str | None) -> list[str]:
    """Returns the changes of a config that --set and --backend ask for."""
    return [*(overrides or ()), *([f"train.backend={backend}"] if backend else ())]


def all_logs(logs: list[Path] | None, log_dirs: list[Path] | None) -> list[Path]:
    """Returns the logs named by arguments and by --log-dir. Raises ConfigError without any."""
    if paths := [*(log_dirs or ()), *(logs or ())]:
        return paths
    raise ConfigError(
        "No dialogue logs are named. Name the folder that a run wrote them to, such as runs/matching_local/logs."
    )


def import_games(games: Strings) -> None:
    """Imports the games of --game, which logs name but never import. Raises ConfigError if an import fails."""
    for game in games or ():
        environment_class(game)


def check_folder(path: Path) -> Path:
    """Returns the folder of --output. Raises ConfigError if it is a file, or is named like one."""
    if path.suffix.lower() in _FILES or path.is_file():
        raise ConfigError(f"--output {path} is a file, but a folder is written. Name a folder.")
    return path
