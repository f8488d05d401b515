"""`slim-rl train`: trains with the backend that the config names."""

from __future__ import annotations

from typing import Annotated

import typer

from slim_rl import backends
from slim_rl.commands.options import Backend, ConfigFile, Overrides
from slim_rl.config import load_config
from slim_rl.lab.incentives import launch_check
from slim_rl.processes import interruptible
from slim_rl.ranks import own_rank


def command(
    config: ConfigFile,
    overrides: Overrides = None,
    backend: Backend = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="start over instead of resuming")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would run, and stop")] = False,
    print_flags: Annotated[
        bool,
        typer.Option("--print-flags", help="slime: print the flags that depend on the config, for its launch script"),
    ] = False,
    extra: Annotated[
        list[str] | None, typer.Argument(help="trainer's arguments: for verl key=value; for slime flags, after --")
    ] = None,
) -> None:
    """Train a policy, or resume an interrupted run from its last checkpoint."""
    changes = [*(overrides or ()), *([f"train.backend={backend}"] if backend else [])]
    settings = load_config(config, changes)
    launch_check.register()
    with interruptible(backends.RESUME_HINT):
        request = backends.Request(config, changes, settings, extra or (), fresh, dry_run, print_flags)
        result = backends.start(request)
    if result is not None and own_rank() == 0:
        report(result)


def report(result: backends.Result) -> None:
    """Prints the results of a run on this machine: held-out games before and after, and the paths of its files."""
    from rich.console import Console

    from slim_rl.analysis.terminal_tables import before_after_table
    from slim_rl.analysis.verdict import verdict

    console = Console()
    if result.before and result.after:
        console.print(before_after_table(result.before, result.after))
        for sentence in verdict(result.before, result.after):
            console.print(sentence, highlight=False, markup=False)
    console.print(f"model: {result.run_dir / 'model'}\ndialogues: {result.log_dir}", style="dim", markup=False)
