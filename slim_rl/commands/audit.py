"""`slim-rl audit`: what a partner said, checked against the true tables."""

from __future__ import annotations

import typer
from tqdm import tqdm

from slim_rl.commands.options import LogDirs, Logs, all_logs
from slim_rl.commands.screen import printable
from slim_rl.dialogue.log import read_log
from slim_rl.games.matching.audit import audit_dialogues


def command(logs: Logs = None, log_dir: LogDirs = None) -> None:
    """Check a partner against the true tables: false values, leaks, refusals, unfair acceptances."""
    dialogues = (dialogue for log in all_logs(logs, log_dir) for dialogue in read_log(log))
    report = audit_dialogues(tqdm(dialogues, desc="reading", unit=" dialogues", disable=None))
    typer.echo(printable(report.table()))
