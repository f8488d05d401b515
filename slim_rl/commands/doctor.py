"""`slim-rl doctor`: checks a machine and a config before a run.

To add a check, write a function of the config and list it in `EXAMINATIONS` of `backends/doctor.py`.
"""

from collections.abc import Iterator

import typer

from slim_rl.backends.doctor import EXAMINATIONS, Check, examine, verdict
from slim_rl.commands.options import Backend, ConfigFile, Overrides, changes_of
from slim_rl.commands.screen import printable, show_status
from slim_rl.config import Config, load_config
from slim_rl.errors import ConfigError
from slim_rl.lab.incentives import measure

COLOURS = {"pass": "green", "warn": "yellow", "fail": "red"}
ASKING, GAMES = "gain from asking", 500  # name of the check, and its games per player
ADVICE = (
    "An initial policy that rarely asks may never learn to. See which behaviour is rewarded with `slim-rl lab incentives CONFIG --games 2000`, "
    "and what to change in docs/how-to/check-that-asking-raises-reward.md."
)


def command(config: ConfigFile, backend: Backend = None, overrides: Overrides = None) -> None:
    """Check a machine and a config before an expensive run."""
    settings = load_config(config, changes_of(overrides, backend))
    with show_status("checking"):
        checks = examine(settings, {**EXAMINATIONS, ASKING: check_asking})
    for check in checks:
        typer.secho(check.status, fg=COLOURS[check.status], nl=False)
        typer.echo(
            f"  {check.name:<18} {printable(check.finding)}"
            + (f"\n{'':<25}→ {printable(check.fix)}" if check.fix else "")
        )
    raise typer.Exit(int(any(check.status == "fail" for check in checks)))  # warnings do not count


def check_asking(config: Config) -> Iterator[Check]:
    """Yields the check that asking raises the reward and is needed, by scripted players; nothing if the game has none."""
    try:
        found = measure(config, GAMES, (1, 8), everyone=False)
    except ConfigError:
        return
    if found.first_gain is not None:
        yield verdict(ASKING, found.sentence, warn="" if found.rewards_asking else ADVICE)
