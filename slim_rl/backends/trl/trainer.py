"""GRPO on one machine: TRL's GRPOTrainer, given our dialogues, advantages of turns and callbacks."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback
from transformers.integrations import TensorBoardCallback
from trl import GRPOTrainer

from slim_rl.backends.trl.arguments import grpo_arguments
from slim_rl.backends.trl.callbacks import StepLine
from slim_rl.backends.trl.checkpoints import whole_checkpoints
from slim_rl.backends.trl.finite import FiniteSteps
from slim_rl.backends.trl.micro_batches import IDLE, by_length, mark_idle, trim, without_rounding
from slim_rl.backends.trl.rollouts import Rollouts
from slim_rl.backends.trl.scoring import add_scoring, suits
from slim_rl.config import Config
from slim_rl.dialogue.measures import TRACKED
from slim_rl.files import disk_errors
from slim_rl.policies.lora import lora_config

# accelerate calls the CPU of several processes cpu:0, where torch.load finds no place to put a checkpoint's tensors.
torch.serialization.register_package(0, lambda _: None, lambda storage, place: storage if place == "cpu:0" else None)


class TrimmedGRPOTrainer(FiniteSteps, GRPOTrainer):
    """TRL's trainer without what changes nothing. Dialogues of like length share a micro-batch, computed at its own longest; and where
    there is no KL and no entropy bonus those without an advantage (their whole group earned the same) are not computed at all. Same loss, same gradient:
    every micro-batch of a step counts towards the same update.
    """

    _buffered_inputs: list[dict[str, Any]] | None  # TRL's: the step's micro-batches
    turn_advantages: Callable[[int, Any], torch.Tensor | None] | None = None  # of a training reward that gives some
    shares_prompts = False  # whether `scoring` computes the log-probabilities
    # the policy's own tokens of the micro-batch being learned: (rows, completion tokens)
    _scored: torch.Tensor | None = None

    def _prepare_inputs(self, generation_batch: dict[str, Any]) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        # TRL's bonus is a mean of micro-batches, so that it depends on who shares one
        if self._entropy_bonus_enabled or self._buffered_inputs is None or self._buffered_inputs is before:
            return inputs
        self._buffered_inputs = by_length(self._buffered_inputs, together=self.shares_prompts)
        mark_idle(self._buffered_inputs)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        ids = output["completion_ids"]
        if self.turn_advantages and (advantages := self.turn_advantages(ids.shape[1], ids.device)) is not None:
            output["advantages"] = advantages
        elif not self._regularised:  # otherwise every dialogue is computed
            scaled = self.scale_rewards != "none"
            output["advantages"] = without_rounding(output["advantages"], self.num_generations, scaled)
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
        compute = self._score if self.shares_prompts else super()._get_per_token_logps_and_entropies
        if batch_size is None or any(value not in (None, False) for value in others.values()):
            return compute(model, input_ids, attention_mask, logits_to_keep, batch_size, **others)  # type: ignore[no-any-return]
        # The whole step's, as the KL's reference sees it: in batches of like length, each at its own longest.
        start = input_ids.shape[1] - logits_to_keep
        prompts, completions = attention_mask[:, :start].sum(1), attention_mask[:, start:].sum(1)
        logprobs = torch.zeros((len(input_ids), logits_to_keep), device=input_ids.device)
        for rows in (prompts + completions).argsort().split(batch_size):
            prompt, completion = int(prompts[rows].max()), max(1, int(completions[rows].max()))
            columns = slice(start - prompt, start + completion)
            some, _, _ = compute(model, input_ids[rows, columns], attention_mask[rows, columns], completion)
            logprobs[rows, :completion] = some.to(logprobs.dtype)
        return logprobs, None, None

    def _score(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        completion = attention_mask[:, -logits_to_keep:].bool()
        with self.accelerator.autocast():
            logprobs, entropies = model(
                input_ids=input_ids,
                attention_mask=attention_mask,
                scored=completion if self._scored is None else completion & self._scored,
            )
        return logprobs, entropies, None

    def share_prompts(self) -> None:
        """Has `scoring` compute log-probabilities from now on, if it suits the model; adapters' reference is the model itself."""
        model = self.accelerator.unwrap_model(self.model)
        bare = model.get_base_model() if hasattr(model, "get_base_model") else model
        # Where activations are recomputed there is no cache to keep a prompt's states in.
        self.shares_prompts = suits(bare) and not self.args.gradient_checkpointing
        if self.shares_prompts:
            add_scoring(bare, self.temperature)

    def save_now(self) -> None:
        """Saves the steps trained so far, between two steps and as TRL does after one."""
        step = self.state.global_step
        if step and step not in whole_checkpoints(Path(str(self.args.output_dir))):
            self._save_checkpoint(self.model, None)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.check_finite()
        checkpoint = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        with disk_errors(
            "checkpoint", checkpoint, "make room and run the same command: it continues from the last whole checkpoint"
        ):
            super()._save_checkpoint(model, trial)

    @property
    def _regularised(self) -> bool:
        """Returns True if a dialogue without an advantage has a gradient: of a KL, or of a bonus for entropy."""
        return bool(self.beta or self._entropy_bonus_enabled)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        # In a step's last micro-batch all processes add up their gradients, so that one is always computed.
        if inputs.get(IDLE) and not self._regularised and not self.accelerator.sync_gradients:
            return torch.zeros((), device=inputs["advantages"].device, requires_grad=True)
        inputs = trim(inputs)
        self._scored = inputs["tool_mask"].bool() if "tool_mask" in inputs else None
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._scored = None


def reward_function(rollouts: Rollouts) -> Callable[..., list[float | None]]:
    """Returns TRL's reward function, which passes on the training rewards, and adds the dialogues' measures to the step's metrics."""

    def game(*, given: list[float | None], log_metric: Any, **_: Any) -> list[float | None]:
        for name, value in rollouts.metrics.items():
            log_metric(TRACKED + name, value)
        return given

    return game


def make_trainer(config: Config, model: Any, tokenizer: Any, rollouts: Rollouts, run_dir: Path) -> TrimmedGRPOTrainer:
    """Builds TRL's trainer for this run. The dataset's prompts are row names; `rollouts` plays the games."""
    train = config.train
    trainer = TrimmedGRPOTrainer(
        model=model,
        args=grpo_arguments(config, run_dir),
        reward_funcs=reward_function(rollouts),
        train_dataset=Dataset.from_dict({"prompt": rollouts.names()}),
        processing_class=tokenizer,
        peft_config=lora_config(train.lora) if train.lora else None,
        rollout_func=rollouts,
    )
    trainer.turn_advantages = rollouts.turn_advantages
    rollouts.policy.model = trainer.model
    trainer.share_prompts()
    trainer.remove_callback(PrinterCallback)  # it prints the whole dictionary; ours prints a line
    trainer.add_callback(StepLine(run_dir, rollouts.policy))
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:  # no TENSORBOARD_LOGGING_DIR
            callback.logging_dir = str(run_dir / "tensorboard")
    # TRL prints a whole dialogue for each one without a reward; ours are counted in the step's line and told in the log.
    logging.getLogger(GRPOTrainer.__module__).addFilter(lambda record: "returned None" not in record.getMessage())
    return trainer
