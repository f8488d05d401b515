"""Evaluation on held-out games.

Two policies evaluated with the same seed play the same games with the same seeds of the partner, so that they can be compared
in pairs.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from slim_rl.dialogue.games_file import GameRow, digest_of
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.players import Player
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.worker import DialogueSpec, RolloutWorker
from slim_rl.errors import DataError, SlimError
from slim_rl.ranks import own_rank

SCOPE = "eval"  # scope of ids and seeds, equal for all runs and steps: each evaluation of a seed plays the same games


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
    run: Callable[..., Any] = asyncio.run,
) -> list[Dialogue]:
    """Plays each row and returns the dialogues, those of an earlier try included.

    Each dialogue is logged when it ends. A dialogue of an earlier try is played again only if it failed.

    Args:
        step: training step of the policy; None if unknown.
        trials: dialogues per row.
        policy: function from a dialogue's spec to its player (an intervention); None: the worker's policy.
        earlier: dialogues played before; None: those in `log`.
        title: title of the progress bar, which says what is evaluated.
        run: function that runs a coroutine on an event loop; by default on one of its own.

    Raises:
        DataError: an earlier dialogue is of another game of the same id, or was played with another prompt.
        SlimError: the partner takes no more games (its endpoint is down, or its budget spent). Finished dialogues are logged.
    """
    specs = [worker.spec(row, SCOPE, trial, phase="eval", step=step) for trial in range(trials) for row in rows]
    specs = list({spec.id: spec for spec in specs}.values())  # in self-play one game has rows for both seats
    if earlier is None:
        earlier = read_log(log) if log.exists() else ()
    done = {dialogue.id: dialogue for dialogue in earlier if not dialogue.failed}
    for spec in specs:
        for name in done.keys() & worker.ids(spec):
            if other := _difference(done[name], spec, worker):
                raise DataError(f"{log} holds {other}; name another folder, or remove the log to play its games again.")
    with DialogueLog(log, tokens=worker.config.log.tokens) as writer:

        def keep(dialogue: Dialogue) -> None:
            writer.append(dialogue)
            done[dialogue.id] = dialogue
            bar.update()

        left = [spec for spec in specs if any(name not in done for name in worker.ids(spec))]
        dialogues = sum(len(worker.ids(spec)) for spec in left)
        with tqdm(total=dialogues, desc=title, unit="dialogue", disable=None if own_rank() == 0 else True) as bar:
            run(worker.play_all(left, policy=policy, max_live=max_live, done=keep))
    if worker.stopped and any(done[name].failed for spec in left for name in worker.ids(spec)):
        raise SlimError(f"{worker.stopped} Finished dialogues are in {log}; the same command plays the rest.")
    return [done[name] for spec in specs for name in worker.ids(spec) if name in done]


def _difference(played: Dialogue, spec: DialogueSpec, worker: RolloutWorker) -> str:
    """Returns in what a dialogue is not one of its specification; empty if in nothing."""
    if digest_of(played.game_state) != digest_of(spec.row.game_state):
        return f"another game as {spec.row.game_id}: the games file has changed since"
    for was, player in ((played.policy, worker.policy), (played.partner, worker.partner_of(spec))):
        now = player.identity.get("prompt_sha256") if player else None
        if now and was.get("prompt_sha256", now) != now:
            return "dialogues with another prompt: its file has changed since"
    return ""
