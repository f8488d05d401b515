"""`slim-rl train`: hands a config to the backend it names."""

from __future__ import annotations

from typing import Annotated

import typer

from slim_rl import backends
from slim_rl.commands.options import Backend, ConfigFile, Overrides
from slim_rl.commands.screen import working
from slim_rl.config import Config, load_config
from slim_rl.environment import environment_class
from slim_rl.processes import interruptible
from slim_rl.ranks import own_rank

NO_REASON_TO_ASK = (
    "A policy that starts without questions may never come to ask: `slim-rl incentives CONFIG` shows what pays instead, and "
    "docs/incentives.md what to change."
)


def command(
    config: ConfigFile,
    overrides: Overrides = None,
    backend: Backend = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="start over instead of resuming")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would run, and stop")] = False,
    extra: Annotated[
        list[str] | None, typer.Argument(help="verl: its own key=value; slime, after --: its own flags")
    ] = None,
) -> None:
    """Train a policy; an interrupted run resumes from its last checkpoint."""
    changes = [*(overrides or ()), *([f"train.backend={backend}"] if backend else [])]
    settings = load_config(config, changes)
    if not dry_run and own_rank() == 0:
        _say_what_it_pays(settings)
    with interruptible(backends.GO_ON):
        result = backends.start(backends.Request(config, changes, settings, extra or (), fresh=fresh, dry_run=dry_run))
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


def _say_what_it_pays(config: Config) -> None:
    """Before anything is spent: whether asking pays, which scripted players show in seconds, once for each config."""
    from slim_rl.analysis.incentives import at_a_start

    if environment_class(config.environment).seats != 2:
        return
    with working("seeing what the config pays"):
        found = at_a_start(config)
    if found is not None:
        sentence, pays = found
        backends.say(sentence if pays else f"WARNING. {sentence} {NO_REASON_TO_ASK}")
