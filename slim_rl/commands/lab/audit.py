"""`slim-rl lab audit`: checks a partner's messages against the true scores."""

from __future__ import annotations

import typer
from tqdm import tqdm

from slim_rl.commands.options import Games, LogDirs, Logs, all_logs, import_games
from slim_rl.commands.screen import printable
from slim_rl.dialogue.log import read_log
from slim_rl.errors import DataError
from slim_rl.formats import count
from slim_rl.lab.audit import audits


def command(logs: Logs = None, log_dir: LogDirs = None, game: Games = None) -> None:
    """Count a partner's faults: false values, leaks, refusals, unfair acceptances."""
    import_games(game)
    sources = all_logs(logs, log_dir)
    results, skipped = audits(tqdm(read_log(*sources), desc="reading", unit=" dialogues", disable=None))
    if not results and not skipped:
        raise DataError(f"No dialogue is in {', '.join(map(str, sources))}. Name the logs of a run.")
    if results:
        typer.echo(printable("\n\n".join("\n".join(audit.lines()) for audit in results)))
    if skipped:
        typer.echo(f"Left out: {count(skipped, 'dialogue')} of games without a partner audit.")
