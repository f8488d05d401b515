"""`slim-rl train`: hands a config to the backend it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from slim_rl import backends
from slim_rl.commands.options import ConfigFile, Overrides
from slim_rl.config import load_config
from slim_rl.ranks import own_rank


def command(
    config: ConfigFile,
    overrides: Overrides = None,
    backend: Annotated[str | None, typer.Option(help="trl, slime or verl; the config's by default")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="start over instead of resuming")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would run, and stop")] = False,
    extra: Annotated[
        list[str] | None, typer.Argument(help="verl: its own key=value; slime, after --: its own flags")
    ] = None,
) -> None:
    """Train a policy; an interrupted run resumes from its last checkpoint."""
    train(config, overrides or (), backend=backend, fresh=fresh, dry_run=dry_run, extra=extra or ())


def train(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    backend: str | None = None,
    fresh: bool = False,
    dry_run: bool = False,
    extra: Sequence[str] = (),
) -> None:
    """Trains by TRL here, or launches verl or slime.

    Args:
        extra: verl's own key=value words; slime's own flags and the settings of its launch.
        dry_run: check everything and print what would run; needs neither slime nor a GPU.

    Raises:
        SlimError: the config cannot be used, or the run could not be started.
        SystemExit: slime's job ended with another exit code than 0.
    """
    changes = [*overrides, *([f"train.backend={backend}"] if backend else [])]
    result = backends.start(
        backends.Request(path, changes, load_config(path, changes), extra, fresh=fresh, dry_run=dry_run)
    )
    if result is None or own_rank() != 0:  # the first process reports
        return
    from rich.console import Console

    from slim_rl.analysis.terminal_tables import before_after_table
    from slim_rl.analysis.verdict import verdict

    console = Console()
    if result.before and result.after:
        console.print(before_after_table(result.before, result.after))
        for sentence in verdict(result.before, result.after):
            console.print(sentence, highlight=False, markup=False)
    console.print(f"model: {result.run_dir / 'model'}\ndialogues: {result.log_dir}", style="dim", markup=False)
