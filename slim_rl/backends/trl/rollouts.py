"""Plays the dialogues that TRL's GRPOTrainer learns from.

TRL owns advantages, loss, optimiser and checkpoints (trainer.py); this file gives it dialogues. The mask given as `env_mask` is the
dialogue's loss mask, so partner tokens have exactly no gradient. A failed dialogue gets reward None, which TRL keeps out of its
group's baseline, and an all-zero mask.

`rollout_func` is experimental in TRL (1.16.0 is pinned); only `Rollouts.__call__` depends on it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from math import lcm
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from slim_rl.dialogue.failures import Failures
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import StepRewards, by_token, train_reward
from slim_rl.dialogue.worker import DialogueSpec, RolloutWorker
from slim_rl.policies.transformers import TransformersPolicy
from slim_rl.seeds import seed_of


class Rollouts:
    """Plays the dialogues of one step. TRL's `rollout_func`: `prompts` are row names, each repeated group_size times.

    Args:
        run: function that runs a coroutine on an event loop; by default each step has one of its own.
    """

    def __init__(
        self,
        worker: RolloutWorker,
        policy: TransformersPolicy,
        rows: Sequence[GameRow],
        log: DialogueLog,
        run: Callable[..., Any] = asyncio.run,
    ) -> None:
        self.worker, self.policy, self.log, self.run = worker, policy, log, run
        self.config = worker.config
        self.rows = {row.name: row for row in rows}
        self.metrics: dict[str, float] = {}
        self.dialogues: list[Dialogue] = []  # of the last step
        self.given = StepRewards([])  # to them

    def names(self) -> list[str]:
        """Names of all rows, shuffled; under self-play each game has its two seats, side by side.

        TRL leaves out the last games that fill no step, so all are repeated until the steps come out even.
        """
        selfplay = self.worker.selfplay
        order = list(dict.fromkeys(row.game_id if selfplay else name for name, row in self.rows.items()))
        random.Random(seed_of(self.config.seed, "order")).shuffle(order)
        names = [f"{game_id}/{seat}" for game_id in order for seat in (0, 1)] if selfplay else order
        return names * (lcm(len(names), self.config.train.games_per_step) // len(names))

    def __call__(self, prompts: Sequence[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        step = trainer.state.global_step
        # Drawn from the step and not from what came before, so that a resumed run samples the same dialogues.
        rank = trainer.accelerator.process_index
        self.policy.reseed(seed_of(self.config.seed, "sampling", step, rank))
        dialogues = self.dialogues = self._play(prompts, step, rank)
        for dialogue in dialogues:
            self.log.append(dialogue)
        # Those of all processes: they log the same metrics, and stop at the same step, since those that save wait for each other.
        whole = gather_object(dialogues)
        self.metrics = batch_metrics(whole) | train_reward(self.config, whole)
        given = self.worker.training_reward(whole, step)
        mine = slice(rank * len(dialogues), (rank + 1) * len(dialogues))
        self.given = StepRewards(given.rewards[mine], None if given.advantages is None else given.advantages[mine])
        Failures(whole).check(self.config)
        end = self.worker.chat.end_id if self.worker.chat else 0
        return {
            "prompt_ids": [d.prompt_ids or [end] for d in dialogues],
            "completion_ids": [d.response_ids or [end] for d in dialogues],
            "logprobs": [d.logprobs or [0.0] for d in dialogues],
            "env_mask": [loss_mask(d) for d in dialogues],
            "given": self.given.rewards,
        }

    def turn_advantages(self, width: int, device: Any) -> torch.Tensor | None:
        """Returns each turn's advantage at its tokens, 0 elsewhere, in place of TRL's one per dialogue.

        The shape is (dialogues of this process, width). None: the training reward gives turns no advantages.
        """
        if self.given.advantages is None:
            return None
        pairs = zip(self.dialogues, self.given.advantages, strict=True)
        return torch.tensor([by_token(dialogue, turns, width) for dialogue, turns in pairs], device=device)

    def _play(self, prompts: Sequence[str], step: int, rank: int) -> list[Dialogue]:
        """Plays one dialogue per prompt, in order. In self-play one dialogue fills the prompts of both its seats."""
        # A group that torchrun deals to two processes is numbered through: the second's dialogues are others than the first's.
        seen = Counter({prompts[0]: rank * len(prompts) % self.config.train.group_size})
        wanted: list[str] = []
        specs: dict[str, DialogueSpec] = {}
        for name in prompts:
            spec = self.worker.spec(self._row(name), str(step), seen[name], step=step)
            seen[name] += 1
            specs.setdefault(spec.id, spec)
            wanted.append(f"{spec.id}/{name.rpartition('/')[2]}" if self.worker.selfplay else spec.id)
        results = self.run(self.worker.play_all(list(specs.values())))
        played = {dialogue.id: dialogue for dialogues in results for dialogue in dialogues}
        return [played[id] for id in wanted]

    def _row(self, name: str) -> GameRow:
        game_id = name.rpartition("/")[0]
        return self.rows.get(name) or next(row for row in self.rows.values() if row.game_id == game_id)


def loss_mask(dialogue: Dialogue) -> list[int]:
    """Returns the mask for TRL, as long as the response: all zero for a failed dialogue."""
    if dialogue.failed or not dialogue.response_ids:
        return [0] * max(1, len(dialogue.response_ids))
    return dialogue.loss_mask
