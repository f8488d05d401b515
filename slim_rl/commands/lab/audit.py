"""`slim-rl lab audit`: what a partner said, checked against the true tables."""

from __future__ import annotations

import typer
from tqdm import tqdm

from slim_rl.commands.options import Games, LogDirs, Logs, all_logs, name_games
from slim_rl.commands.screen import printable
from slim_rl.dialogue.log import read_log
from slim_rl.errors import DataError
from slim_rl.formats import count
from slim_rl.lab.audit import audits


def command(logs: Logs = None, log_dir: LogDirs = None, game: Games = None) -> None:
    """Check a partner against the truth: false values, leaks, refusals, unfair acceptances."""
    name_games(game)
    sources = all_logs(logs, log_dir)
    found, skipped = audits(tqdm(read_log(*sources), desc="reading", unit=" dialogues", disable=None))
    if not found and not skipped:
        raise DataError(f"There is no dialogue in {', '.join(map(str, sources))}; name the logs of a run.")
    if found:
        typer.echo(printable("\n\n".join("\n".join(audit.lines()) for audit in found)))
    if skipped:
        typer.echo(f"Left out: {count(skipped, 'dialogue')} of games that check no partner.")
