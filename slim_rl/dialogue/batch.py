"""Plays many dialogues side by side on one event loop, and gives them back in the order they were asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slim_rl.config import Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.loop import play_dialogue, play_selfplay
from slim_rl.dialogue.partner import Partner
from slim_rl.dialogue.policy import Policy
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import BaseEnvironment


@dataclass(frozen=True, slots=True)
class Job:
    """One dialogue to be played. `group` names the dialogues its reward is compared with."""

    id: str
    game_id: str
    game_state: Any
    seat: int = 0
    seed: int = 0
    prompt: Sequence[dict[str, str]] | None = None
    group: str = ""


async def play_jobs(
    jobs: Sequence[Job],
    make_env: Callable[[], BaseEnvironment],
    policy: Policy | Callable[[Job], Policy],
    partner: Partner | None,
    chat: Chat,
    limits: Limits,
    *,
    selfplay: bool = False,
    max_live: int | None = None,
    done: Callable[[Dialogue], None] | None = None,
) -> list[list[Dialogue]]:
    """Plays every job in an environment of its own.

    Args:
        policy: one for all, or a function that gives each job its own.
        selfplay: the policy takes both seats; a job then gives two dialogues instead of one.
        max_live: dialogues under way at once; all of them by default.
        done: called with each dialogue as it ends, in the order they end.

    Returns:
        One list a job, in the jobs' order: one dialogue, or under self-play those of seats 0 and 1.
    """
    gate = asyncio.Semaphore(max_live or len(jobs) or 1)

    async def play(job: Job) -> list[Dialogue]:
        async with gate:
            env = make_env()
            player = policy(job) if callable(policy) else policy
            if selfplay:
                dialogues = list(
                    await play_selfplay(
                        env,
                        player,
                        chat,
                        limits,
                        game_state=job.game_state,
                        id=job.id,
                        game_id=job.game_id,
                        seed=job.seed,
                    )
                )
            else:
                dialogues = [
                    await play_dialogue(
                        env,
                        player,
                        partner,
                        chat,
                        limits,
                        game_state=job.game_state,
                        id=job.id,
                        game_id=job.game_id,
                        seat=job.seat,
                        seed=job.seed,
                        prompt=job.prompt,
                    )
                ]
        for dialogue in dialogues:
            dialogue.group = f"{job.group or job.game_id}/{dialogue.seat}" if selfplay else job.group or job.game_id
            if done:
                done(dialogue)
        return dialogues

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(play(job)) for job in jobs]
    return [task.result() for task in running]
