"""Plays held-out games with a policy as it stands, and says how it did, with 95% intervals.

An evaluation is resumable: each dialogue is logged as it ends, and one that is in the log is not played again. Two policies
evaluated with the same seed play the same games with the same partner's seeds, so that they can be compared in pairs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from slim_rl.config import Config
from slim_rl.dialogue.batch import play_jobs
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.record import Dialogue
from slim_rl.games import GameSource
from slim_rl.partners.base import Partner
from slim_rl.policies.base import Policy
from slim_rl.questions.log import DialogueLog, read_log

SALT = "eval"  # in place of the run's own name in the seeds: every evaluation of a seed is dealt the same


def play_held_out(
    config: Config,
    games: GameSource,
    policy: Policy,
    partner: Partner | None,
    chat: Chat,
    *,
    log: Path,
    num_games: int,
    step: int,
    max_live: int | None = None,
) -> list[Dialogue]:
    """Plays the first `num_games` rows once each; returns all dialogues of `log`, those of an earlier try included."""
    prefix = f"{config.name}/eval-{step}"
    jobs = [games.job(name, prefix, 0, salt=SALT) for name in list(games.rows)[:num_games]]
    done = {d.id: d for d in read_log(log)} if log.exists() else {}
    selfplay = config.partner.kind == "self"
    with DialogueLog(log) as writer:

        def keep(dialogue: Dialogue) -> None:
            dialogue.run, dialogue.arm, dialogue.step, dialogue.phase = config.name, config.arm_name, step, "eval"
            writer.append(dialogue)
            done[dialogue.id] = dialogue

        asyncio.run(
            play_jobs(
                [job for job in jobs if (f"{job.id}/0" if selfplay else job.id) not in done],
                games.environment,
                policy,
                partner,
                chat,
                config.limits,
                selfplay=selfplay,
                max_live=max_live,
                done=keep,
            )
        )
    return list(done.values())
