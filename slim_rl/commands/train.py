"""`slim-rl train`: trains with the backend that the config names."""

from typing import Annotated

import typer

from slim_rl import backends
from slim_rl.commands.options import Backend, ConfigFile, Overrides, changes_of
from slim_rl.commands.screen import print_answer
from slim_rl.config import load_config
from slim_rl.processes import interruptible
from slim_rl.ranks import own_rank


def command(
    config: ConfigFile,
    overrides: Overrides = None,
    backend: Backend = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="start over instead of resuming")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would run, and stop")] = False,
    print_flags: Annotated[bool, typer.Option("--print-flags", hidden=True)] = False,
    extra: Annotated[
        list[str] | None, typer.Argument(help="trainer's arguments: for verl key=value; for slime flags, after --")
    ] = None,
) -> None:
    """Train a policy, or resume an interrupted run from its last checkpoint."""
    changes = changes_of(overrides, backend)
    with interruptible(backends.RESUME_HINT):
        request = backends.Request(
            config, changes, load_config(config, changes), extra or (), fresh, dry_run, print_flags
        )
        result = backends.start(request)
    if result is not None and own_rank() == 0:
        report(result)


def report(result: backends.Result) -> None:
    """Prints the results of a run on this machine: held-out games before and after, and the paths of its files."""
    if result.before and result.after:
        print_answer([*result.before, *result.after])
    typer.echo(f"model: {result.run_dir / 'model'}\ndialogues: {result.log_dir}")
