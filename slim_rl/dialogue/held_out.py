"""Held-out games, played with a policy that is not being trained.

Two policies evaluated with the same seed play the same games with the same partner's seeds, so they can be compared in pairs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tqdm import tqdm

from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.loop import Player
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import DialogueSpec, RolloutWorker
from slim_rl.errors import SlimError
from slim_rl.ranks import own_rank

SCOPE = "eval"  # of ids and seeds, the same for every run and step: every evaluation of a seed is dealt the same games


def play_held_out(
    worker: RolloutWorker,
    rows: Sequence[GameRow],
    log: Path,
    *,
    step: int | None,
    trials: int = 1,
    policy: Callable[[DialogueSpec], Player] | None = None,
    max_live: int | None = None,
    earlier: Iterable[Dialogue] | None = None,
    title: str = "held-out games",
) -> list[Dialogue]:
    """Plays each row; returns the rows' dialogues, those of an earlier try included. Each dialogue is logged as it ends, and one of an
    earlier try is not played again, unless it failed.

    Args:
        step: the training step that the policy is of; None where it is not known.
        trials: dialogues a row.
        policy: gives each episode its own player (an intervention).
        earlier: what was played before, if that is not what is in `log`.
        title: of the progress bar.

    Raises:
        SlimError: the partner takes no more games (its endpoint is down, or its budget spent); what was played is logged.
    """
    specs = [worker.spec(row, SCOPE, trial, phase="eval", step=step) for trial in range(trials) for row in rows]
    if earlier is None:
        earlier = read_log(log) if log.exists() else ()
    done = {dialogue.id: dialogue for dialogue in earlier if not dialogue.failed}
    with DialogueLog(log, tokens=worker.config.log.tokens) as writer:

        def keep(dialogue: Dialogue) -> None:
            writer.append(dialogue)
            done[dialogue.id] = dialogue
            bar.update()

        left = [spec for spec in specs if any(name not in done for name in worker.ids(spec))]
        dialogues = sum(len(worker.ids(spec)) for spec in left)
        with tqdm(
            total=dialogues,
            desc=f"{title}, {log.stem}",
            unit="dialogue",
            disable=None if own_rank() == 0 else True,
        ) as bar:
            asyncio.run(worker.play_all(left, policy=policy, max_live=max_live, done=keep))
    if worker.stopped:
        raise SlimError(f"{worker.stopped} What was played is in {log}; the same command plays the rest.")
    return [done[name] for spec in specs for name in worker.ids(spec) if name in done]
