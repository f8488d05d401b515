"""GRPO on one machine, by TRL's GRPOTrainer.

TRL owns advantages, loss, optimiser and checkpoints; this file gives it dialogues. The mask given as `env_mask` is the
dialogue's loss mask, so partner tokens have exactly no gradient. A failed dialogue gets reward None, which TRL keeps out of its
group's baseline, and an all-zero mask.

`rollout_func` is experimental in TRL (1.16.0 is pinned); only `Rollouts.__call__` depends on it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import PrinterCallback
from transformers.integrations import TensorBoardCallback
from trl import GRPOConfig, GRPOTrainer

from slim_rl.backends.trl.callbacks import ROOM, MarkWhole, StepLine, is_whole
from slim_rl.backends.trl.credit import TurnCredit
from slim_rl.backends.trl.rewards import GAME_REWARD, GameReward, payment
from slim_rl.config import Config
from slim_rl.dialogue.annotator import Annotator
from slim_rl.dialogue.failures import Failures
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.unlogged import Unlogged
from slim_rl.dialogue.worker import Episode, RolloutWorker
from slim_rl.errors import SlimError
from slim_rl.files import disk_errors
from slim_rl.keys import values
from slim_rl.policies.transformers import TransformersPolicy
from slim_rl.seeds import seed_of

IDLE = "idle"  # the key of a micro-batch that would change nothing


class Rollouts:
    """Plays the dialogues of one step. TRL's `rollout_func`: `prompts` are row names, each repeated group_size times."""

    def __init__(
        self, worker: RolloutWorker, policy: TransformersPolicy, rows: Sequence[GameRow], log: DialogueLog
    ) -> None:
        self.worker, self.policy, self.log, self.annotator = worker, policy, log, Annotator()
        self.unlogged = Unlogged(log.path.with_name(f"{log.path.stem}-unlogged.lines"))
        self.config = worker.config
        self.rows = {row.name: row for row in rows}
        self.metrics: dict[str, float] = {}
        self.dialogues: list[Dialogue] = []  # of the last step

    def names(self) -> list[str]:
        """Names of all rows, shuffled; under self-play each game has its two seats, side by side."""
        if not self.worker.selfplay:
            names = list(self.rows)
            random.Random(seed_of(self.config.seed, "order")).shuffle(names)
            return names
        games = list(dict.fromkeys(row.game_id for row in self.rows.values()))
        random.Random(seed_of(self.config.seed, "order")).shuffle(games)
        return [f"{game_id}/{seat}" for game_id in games for seat in (0, 1)]

    def __call__(self, prompts: Sequence[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        step = trainer.state.global_step
        # Drawn from the step and not from what came before, so that a resumed run samples the same dialogues.
        rank = trainer.accelerator.process_index
        self.policy.reseed(seed_of(self.config.seed, "sampling", step, rank))
        dialogues = self._play(prompts, step, rank)
        for dialogue in dialogues:
            self.log.append(dialogue)  # annotated while others were still played
        self.unlogged.logged({dialogue.id for dialogue in dialogues})
        self.dialogues, self.metrics = dialogues, batch_metrics(dialogues)
        failures = Failures(dialogues)
        # Under torchrun all processes stop at the same step: those that save wait for each other.
        failures.stopped = next(filter(None, gather_object([failures.stopped])), None)
        failures.check(self.config)
        end = self.worker.chat.end_id if self.worker.chat else 0
        return {
            "prompt_ids": [d.prompt_ids or [end] for d in dialogues],
            "completion_ids": [d.response_ids or [end] for d in dialogues],
            "logprobs": [d.logprobs or [0.0] for d in dialogues],
            "env_mask": [loss_mask(d) for d in dialogues],
            "payment": [payment(d, self.config.train) for d in dialogues],
            "group": [d.group for d in dialogues],
        }

    def _play(self, prompts: Sequence[str], step: int, rank: int) -> list[Dialogue]:
        """One dialogue a prompt, in their order. Under self-play one episode fills the prompts of both its seats."""
        # A group that torchrun deals to two processes is numbered through: the second's dialogues are others than the first's.
        seen = Counter({prompts[0]: rank * len(prompts) % self.config.train.group_size})
        wanted: list[str] = []
        episodes: dict[str, Episode] = {}
        for name in prompts:
            episode = self.worker.episode(self._row(name), str(step), seen[name], step=step)
            seen[name] += 1
            episodes.setdefault(episode.id, episode)
            wanted.append(f"{episode.id}/{name.rpartition('/')[2]}" if self.worker.selfplay else episode.id)
        waiting: list[Future[None]] = []

        def done(ended: Dialogue) -> None:
            self.unlogged.append(ended)
            waiting.append(self.annotator.submit(ended))

        results = asyncio.run(self.worker.play_all(list(episodes.values()), done=done))
        for future in waiting:
            future.result()
        played = {dialogue.id: dialogue for dialogues in results for dialogue in dialogues}
        return [played[id] for id in wanted]

    def _row(self, name: str) -> GameRow:
        game_id = name.rpartition("/")[0]
        return self.rows.get(name) or next(row for row in self.rows.values() if row.game_id == game_id)


def loss_mask(dialogue: Dialogue) -> list[int]:
    """The mask TRL is given, as long as the response: all zero for a failed dialogue, which teaches nothing."""
    if dialogue.failed or not dialogue.response_ids:
        return [0] * max(1, len(dialogue.response_ids))
    return dialogue.loss_mask


class TrimmedGRPOTrainer(GRPOTrainer):
    """TRL's trainer without what changes nothing. Dialogues of like length share a micro-batch, computed at its own longest; and where
    there is no KL those without an advantage (their whole group earned the same) are not computed at all. Same loss, same gradient:
    every micro-batch of a step counts towards the same update.
    """

    _buffered_inputs: list[dict[str, Any]] | None  # TRL's: the step's micro-batches
    credit: TurnCredit | None = None  # with `train.credit: turn`

    def _prepare_inputs(self, generation_batch: dict[str, Any]) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is None or self._buffered_inputs is before:
            return inputs
        self._buffered_inputs = by_length(self._buffered_inputs)
        mark_idle(self._buffered_inputs)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self.credit is not None:
            ids = output["completion_ids"]
            output["advantages"] = self.credit(self.accelerator.process_index, ids.shape[1], ids.device)
        return output

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: int,
        batch_size: int | None = None,
        **others: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        compute = super()._get_per_token_logps_and_entropies
        if batch_size is None or any(value not in (None, False) for value in others.values()):
            return compute(model, input_ids, attention_mask, logits_to_keep, batch_size, **others)  # type: ignore[no-any-return]
        # The whole step's, as the KL's reference sees it: in batches of like length, each at its own longest.
        start = input_ids.shape[1] - logits_to_keep
        prompts, completions = attention_mask[:, :start].sum(1), attention_mask[:, start:].sum(1)
        logprobs = torch.zeros((len(input_ids), logits_to_keep), device=input_ids.device)
        for rows in (prompts + completions).argsort().split(batch_size):
            prompt, completion = int(prompts[rows].max()), int(completions[rows].max())
            columns = slice(start - prompt, start + completion)
            some, _, _ = compute(model, input_ids[rows, columns], attention_mask[rows, columns], completion)
            logprobs[rows, :completion] = some.to(logprobs.dtype)
        return logprobs, None, None

    def save_now(self) -> None:
        """Saves the steps trained so far, between two steps and as TRL does after one."""
        step = self.state.global_step
        if step and not is_whole(Path(str(self.args.output_dir)), step):
            self._save_checkpoint(self.model, None)
            self.control: Any = self.callback_handler.on_save(self.args, self.state, self.control)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        checkpoint = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        with disk_errors("checkpoint", checkpoint, ROOM):
            super()._save_checkpoint(model, trial)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        metrics = self._metrics["train"]
        if GAME_REWARD in metrics:  # what TRL calls the reward is what was paid
            metrics["reward_paid"], metrics["reward"] = metrics["reward"], metrics.pop(GAME_REWARD)
        super().log(logs, start_time)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        # In a step's last micro-batch all processes add up their gradients, so that one is always computed.
        if inputs.get(IDLE) and not self.beta and not self.accelerator.sync_gradients:
            return torch.zeros((), device=inputs["advantages"].device, requires_grad=True)
        return super()._compute_loss(model, trim(inputs))


def by_length(batches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows in as many batches of the same size: those without an advantage first, then by the dialogue's length. What is not
    a row's stays with its batch.
    """
    size = len(batches[0]["completion_mask"])
    lengths = torch.cat([batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1) for batch in batches])
    teaches = torch.cat([batch["advantages"].reshape(size, -1).any(1) for batch in batches])
    chosen = torch.argsort(lengths + teaches * (lengths.max() + 1), stable=True).split(size)
    sorted_batches = [dict(batch) for batch in batches]
    for name, value in batches[0].items():
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            rows = torch.cat([batch[name] for batch in batches])
            for batch, indices in zip(sorted_batches, chosen, strict=True):
                batch[name] = rows[indices]
        elif isinstance(value, list):
            listed = [row for batch in batches for row in batch[name]]
            for batch, indices in zip(sorted_batches, chosen, strict=True):
                batch[name] = [listed[index] for index in indices.tolist()]
    return sorted_batches


def mark_idle(batches: Sequence[dict[str, Any]]) -> None:
    """Says of each batch whether no dialogue of it has an advantage, in any process: TRL's loss gathers numbers from all of them, so
    all compute a batch or none does.
    """
    idle = [not batch["advantages"].any() for batch in batches]
    for batch, everywhere in zip(batches, zip(*gather_object([idle]), strict=True), strict=True):
        batch[IDLE] = all(everywhere)


def trim(inputs: dict[str, Any]) -> dict[str, Any]:
    """Takes off columns that are padding in every row: prompts are padded on the left, completions on the right."""
    prompt = int(inputs["prompt_mask"].sum(1).max())
    completion = int(inputs["completion_mask"].sum(1).max())
    width = inputs["completion_mask"].shape[1]
    trimmed = dict(inputs)
    for name, value in inputs.items():
        if name in ("prompt_ids", "prompt_mask"):
            trimmed[name] = value[:, -prompt:]
        elif isinstance(value, torch.Tensor) and value.dim() == 2 and value.shape[1] == width:
            trimmed[name] = value[:, :completion]
    return trimmed


def make_trainer(config: Config, model: Any, tokenizer: Any, rollouts: Rollouts, run_dir: Path) -> TrimmedGRPOTrainer:
    """TRL's trainer for this run. The dataset's prompts are row names; `rollouts` deals the games."""
    train = config.train
    arguments = grpo_arguments(config, run_dir)
    arguments.save_total_limit = (
        None  # `MarkWhole` sees to it: TRL would remove the last whole one before the new one is marked
    )
    peft_config = None
    if train.lora is not None:
        from peft import LoraConfig

        targets = train.lora.target_modules
        peft_config = LoraConfig(
            r=train.lora.r,
            lora_alpha=train.lora.alpha,
            lora_dropout=train.lora.dropout,
            target_modules=targets if isinstance(targets, str) else list(targets),
            task_type="CAUSAL_LM",
        )
    reward = GameReward(config, rollouts)
    trainer = TrimmedGRPOTrainer(
        model=model,
        args=arguments,
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": rollouts.names()}),
        processing_class=tokenizer,
        peft_config=peft_config,
        rollout_func=rollouts,
    )
    trainer.credit = TurnCredit(config, rollouts, reward) if train.credit == "turn" else None
    rollouts.policy.model = trainer.model
    trainer.remove_callback(PrinterCallback)  # it prints the whole dictionary; ours prints a line
    trainer.add_callback(StepLine(run_dir, rollouts.policy))
    trainer.add_callback(MarkWhole(train.keep_checkpoints))
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:  # no TENSORBOARD_LOGGING_DIR
            callback.logging_dir = str(run_dir / "tensorboard")
    # TRL prints a whole dialogue for each one without a reward; ours are counted in the step's line and told in the log.
    logging.getLogger(GRPOTrainer.__module__).addFilter(lambda record: "returned None" not in record.getMessage())
    return trainer


def grpo_arguments(config: Config, run_dir: Path) -> GRPOConfig:
    """TRL's arguments for `config`. Raises SlimError if the batch does not divide, or a group has nothing to compare."""
    train = config.train
    if train.group_size < 2:
        raise SlimError("train.group_size is 1, but GRPO compares the dialogues of a group; give it at least 2.")
    dialogues = train.games_per_step * train.group_size
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    micro = min(train.micro_batch, dialogues // processes)
    if dialogues % (micro * processes):
        raise SlimError(
            f"train.games_per_step × train.group_size = {dialogues} dialogues a step do not divide into micro-batches of "
            f"{micro} on {processes} process(es); choose a train.micro_batch that divides them."
        )
    accumulation = dialogues // (micro * processes)
    on_gpu = torch.cuda.is_available()
    arguments = values(config, "trl") | {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation,
        # Read only by loss types that divide by it; the dialogues themselves obey `limits`.
        "max_completion_length": config.limits.dialogue_tokens or config.limits.context_tokens or 4096,
    }
    if train.frozen:
        arguments["learning_rate"] = 0.0
    return GRPOConfig(
        **arguments,
        output_dir=str(run_dir / "checkpoints"),
        run_name=config.name,
        weight_decay=0.0,
        # The names come shuffled by our own seed, the seats of a game side by side.
        shuffle_dataset=False,
        use_cpu=not on_gpu,
        bf16=on_gpu and config.policy.dtype == "bfloat16",
        logging_steps=1,
        save_strategy="steps",
        ddp_find_unused_parameters=False,  # there are none
        ddp_timeout=6 * 3600,  # seconds: the other processes wait while rank 0 plays held-out games
        disable_tqdm=True,
        dataloader_pin_memory=on_gpu,
        remove_unused_columns=False,
    )
