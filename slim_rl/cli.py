"""`slim-rl`: one command a task. Each command imports what it needs when it runs, so that `slim-rl --help` is instant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

app = typer.Typer(
    help="Does a language model learn to ask questions when reinforcement learning makes asking worth it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Config = Annotated[Path, typer.Argument(help="a YAML file, such as configs/matching_local.yaml")]
Overrides = Annotated[
    Optional[list[str]],  # noqa: UP045  typer reads this form
    typer.Option("--set", "-s", help="override a key: partner.kind=mute (repeatable)", metavar="KEY=VALUE"),
]


@app.command()
def train(
    config: Config,
    overrides: Overrides = None,
    fresh: Annotated[bool, typer.Option(help="start anew instead of resuming")] = False,
    dry_run: Annotated[bool, typer.Option(help="print what would be run, and stop")] = False,
) -> None:
    """Train a policy; resumes by itself from its last checkpoint."""
    from slim_rl.train import train as run

    run(config, overrides or (), fresh=fresh, dry_run=dry_run)


@app.command()
def warmstart(
    config: Config,
    output: Annotated[Path, typer.Option(help="folder to write")] = Path("data/warmstart"),
    overrides: Overrides = None,
    workers: Annotated[int, typer.Option(help="processes that deal games")] = 1,
) -> None:
    """Make the tiny model that local runs start from."""
    from slim_rl.config import load_config
    from slim_rl.warmstart.train import warmstart as run

    typer.echo(f"wrote {run(load_config(config, overrides or ()), output, workers)}")


def main() -> None:
    """Entry point. A `SlimError` is one sentence on stderr and exit code 1; anything else is a bug and shows its traceback."""
    from slim_rl.errors import SlimError

    try:
        app()
    except SlimError as error:
        print(f"slim-rl: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
