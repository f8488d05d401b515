"""Each training key once: what TRL, slime and verl call it. The launchers build their commands from this table.

Each name comes with the converter that makes the trainer's value of the config's. A key without a trainer's name is
used by slim_rl's dialogue loop, or combined with others by the trainer's launcher; its note says which.
`slim_rl.reference` writes the page of all keys from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from slim_rl.config import Config

Trainer = Literal["slime", "trl", "verl"]
Names = Mapping[str, Callable[[Any], Any]]


def same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the config.

    Attributes:
        name: dotted, as in a config file.
        slime: its launch flags and what each is given: False or None leaves the flag out, True gives it without a value.
        trl: fields of TRL's GRPOConfig.
        verl: hydra keys.
        note: what a reader must know beyond the field's own description.
    """

    name: str
    slime: Names = field(default_factory=dict)
    trl: Names = field(default_factory=dict)
    verl: Names = field(default_factory=dict)
    note: str = ""


def _key(name: str, slime: str | Names = "", trl: str | Names = "", verl: str | Names = "", note: str = "") -> Key:
    """A key by its trainers' names: words, where they take its value as it is, or each with its converter."""
    return Key(name, _converted(slime), _converted(trl), _converted(verl), note)


def _converted(names: str | Names) -> Names:
    return dict.fromkeys(names.split(), same) if isinstance(names, str) else names


# transformers' own constant knows no warm-up
_TRL_SCHEDULE = {"wsd": "warmup_stable_decay", "constant": "constant_with_warmup"}
_TRL_LOSS = {"sequence": "grpo", "token": "dapo", "constant": "dr_grpo"}
_VERL_LOSS = {"sequence": "seq-mean-token-mean", "token": "token-mean", "constant": "seq-mean-token-sum-norm"}
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

KEYS: tuple[Key, ...] = (
    _key("seed", "--rollout-seed --seed", "seed", f"data.seed {_ROLLOUT}.seed {_ACTOR}.data_loader_seed"),
    _key("policy.model", "--hf-checkpoint", verl="actor_rollout_ref.model.path", note="TRL gets the loaded model"),
    _key("policy.temperature", "--rollout-temperature", "temperature", f"{_ROLLOUT}.temperature"),
    _key("policy.top_p", "--rollout-top-p", "top_p", f"{_ROLLOUT}.top_p"),
    _key("policy.thinking", note="the dialogue loop passes it to the chat template as enable_thinking"),
    _key("train.steps", "--num-rollout", "max_steps", "trainer.total_training_steps"),
    _key(
        "train.games_per_step",
        "--rollout-batch-size",
        verl="data.train_batch_size",
        note="TRL counts dialogues: games_per_step × group_size, which is also slime's --global-batch-size, in self-play twice as "
        "many; verl's mini-batch is one step: so many games, in self-play twice as many",
    ),
    _key("train.group_size", "--n-samples-per-prompt", "num_generations", f"{_ROLLOUT}.n"),
    _key(
        "train.micro_batch",
        trl="per_device_train_batch_size",
        note="slime and verl pack by tokens: --max-tokens-per-gpu, ppo_max_token_len_per_gpu",
    ),
    _key("train.learning_rate", "--lr", "learning_rate", f"{_ACTOR}.optim.lr"),
    _key(
        "train.lr_schedule",
        {"--lr-decay-style": lambda schedule: "WSD" if schedule == "wsd" else schedule},
        {"lr_scheduler_type": lambda schedule: _TRL_SCHEDULE.get(schedule, schedule)},
        f"{_ACTOR}.optim.lr_scheduler_type",
        "verl has constant and cosine",
    ),
    _key(
        "train.lr_decay_steps",
        {
            "--lr-wsd-decay-iters": lambda steps: steps or None,
            "--lr-wsd-decay-style": lambda steps: "linear" if steps else None,
        },
        {"lr_scheduler_kwargs": lambda steps: {"num_decay_steps": steps, "decay_type": "linear"} if steps else None},
    ),
    _key("train.warmup_steps", "--lr-warmup-iters", "warmup_steps", f"{_ACTOR}.optim.lr_warmup_steps"),
    _key(
        "train.weight_decay", "--weight-decay", "weight_decay", f"{_ACTOR}.optim.weight_decay critic.optim.weight_decay"
    ),
    _key("train.adam_beta1", "--adam-beta1", "adam_beta1", note="verl: optim.betas, both in one"),
    _key("train.adam_beta2", "--adam-beta2", "adam_beta2", note="verl: optim.betas, both in one"),
    _key("train.max_grad_norm", "--clip-grad", "max_grad_norm", f"{_ACTOR}.optim.clip_grad {_ACTOR}.grad_clip"),
    _key(
        "train.clip_ratio",
        # A wider upper clip lets rare good turns, such as a first question, grow (DAPO's clip-higher).
        {"--eps-clip": same, "--eps-clip-high": lambda clip: round(1.4 * clip, 4)},
        "epsilon",
        f"{_ACTOR}.clip_ratio {_ACTOR}.clip_ratio_low {_ACTOR}.clip_ratio_high",
        "with one update a step the ratio is 1 and nothing is clipped",
    ),
    _key(
        "train.kl_coef",
        # One term in all three: an estimate that is never negative (k3), with the gradient of the KL itself, which is not the
        # estimate's own. slime and TRL get it by the ratio to the policy that sampled, verl by a straight-through term ("+").
        # Without a KL term no reference model is loaded at all.
        {
            "--use-kl-loss": bool,
            "--kl-loss-coef": lambda coef: coef or None,
            "--kl-loss-type": lambda coef: "k3" if coef else None,
            "--use-unbiased-kl": bool,
        },
        {"beta": same, "use_bias_correction_kl": lambda _: True},
        {
            f"{_ACTOR}.kl_loss_coef": same,
            f"{_ACTOR}.kl_loss_type": lambda _: "k3+",
            "algorithm.kl_ctrl.kl_coef": same,
        },
        "the same unbiased gradient in all three; verl.kl says whether verl has it in the loss or in the reward",
    ),
    _key(
        "verl.kl",
        verl={
            f"{_ACTOR}.use_kl_loss": lambda where: where == "loss",
            "algorithm.use_kl_in_reward": lambda where: where == "reward",
        },
        note="neither if train.kl_coef is 0",
    ),
    _key(
        "train.scale_rewards",
        # Dr. GRPO: dividing by a group's deviation favours games whose dialogues all ended alike.
        {"--disable-grpo-std-normalization": lambda scale: not scale},
        {"scale_rewards": lambda scale: "group" if scale else "none"},
        "algorithm.norm_adv_by_std_in_grpo",
        "slime's flag is the opposite",
    ),
    _key(
        "train.loss",
        {"--calculate-per-token-loss": lambda loss: loss == "token"},
        {"loss_type": lambda loss: _TRL_LOSS[loss or "token"]},
        {f"{_ACTOR}.loss_agg_mode": lambda loss: _VERL_LOSS[loss or "token"]},
        "slime has no constant",
    ),
    _key(
        "train.payment",
        note="the same function in every backend; of turns: slime's --custom-advantage-function-path, verl's adv_estimator turn_credit",
    ),
    _key("train.payment_args", note="in every backend"),
    _key("train.exploring_starts", note="the same function in every backend; slime needs policy.temperature 1 for it"),
    _key("train.exploring_steps", note="on slime counted by games"),
    _key("train.frozen", note="the learning rate is 0, in every backend"),
    _key("train.save_every", "--save-interval", "save_steps", "trainer.save_freq"),
    _key(
        "train.keep_checkpoints",
        trl="save_total_limit",
        verl="trainer.max_actor_ckpt_to_keep trainer.max_critic_ckpt_to_keep",
        note="slime deletes no checkpoint",
    ),
    _key(
        "train.eval_every",
        {"--eval-interval": lambda every: every or None},
        {"eval_steps": lambda every: every or None},
        {"trainer.test_freq": lambda every: every or -1},
    ),
    _key(
        "train.gradient_checkpointing",
        trl="gradient_checkpointing",
        verl="actor_rollout_ref.model.enable_gradient_checkpointing",
        note="on slime activations are always recomputed",
    ),
    _key(
        "train.report_to",
        {"--use-wandb": lambda names: "wandb" in names, "--use-tensorboard": lambda names: "tensorboard" in names},
        {"report_to": lambda names: list(names) or "none"},
        {"trainer.logger": lambda names: ["console", *names]},
    ),
    _key(
        "limits.dialogue_tokens",
        "--rollout-max-response-len",
        "max_completion_length",
        "data.max_response_length",
        "6144 for slime and verl if not set; context_tokens or 4096 for TRL",
    ),
    _key(
        "limits.context_tokens",
        "--rollout-max-context-len",
        note="8192 for slime if not set; verl: verl.prompt_tokens + limits.dialogue_tokens",
    ),
    _key("limits.turn_tokens", note="applied by the dialogue loop, in every backend"),
    _key("limits.turn_seconds", note="applied by the dialogue loop, in every backend"),
    _key("verl.adv_estimator", verl="algorithm.adv_estimator", note="slime: --advantage-estimator; TRL has GRPO only"),
    _key("verl.gamma", verl="algorithm.gamma", note="slime: --gamma"),
    _key("verl.lam", verl="algorithm.lam", note="slime: --lambd"),
    _key("verl.engine", verl=f"{_ROLLOUT}.name", note="slime: SGLang; TRL: in process"),
    _key("verl.kl_control", verl="algorithm.kl_ctrl.type"),
    _key("verl.kl_target", verl="algorithm.kl_ctrl.target_kl"),
    _key("verl.kl_horizon", verl="algorithm.kl_ctrl.horizon"),
    _key("verl.critic_model", verl="critic.model.path"),
    _key("verl.critic_learning_rate", verl="critic.optim.lr"),
    _key("verl.reference_model", note="see verl.md; slime takes it from TORCH_DIST"),
    _key("verl.prompt_tokens", verl="data.max_prompt_length", note="slime: --rollout-max-prompt-len"),
    _key("verl.gpus", verl="trainer.n_gpus_per_node", note="slime: NUM_GPUS"),
    _key("verl.nodes", verl="trainer.nnodes", note="slime: NUM_NODES"),
)


def lookup(config: Config, name: str) -> Any:
    """The value of a dotted key."""
    return attrgetter(name)(config)


def values(config: Config, trainer: Trainer) -> dict[str, Any]:
    """The trainer's names and values of all keys of the table. What a config leaves open a launcher settles before, by `Config.changed`:
    what it set beside the table could contradict it. In a short run warm-up and decay are shortened too, and a frozen policy
    learns at the rate 0.
    """
    rise, fall = config.train.slopes
    rate = 0.0 if config.train.frozen else config.train.learning_rate
    train = {"warmup_steps": rise, "lr_decay_steps": fall, "learning_rate": rate}
    config = config.changed(train=train, verl={} if config.train.kl_coef else {"kl": None})
    return {name: convert(lookup(config, key.name)) for key in KEYS for name, convert in getattr(key, trainer).items()}


def disjoint(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """All parts of a trainer's settings as one. Raises ValueError if two of them set the same name: one would lose without a word."""
    merged: dict[str, Any] = {}
    for part in parts:
        if twice := sorted(merged.keys() & part.keys()):
            raise ValueError(
                f"{', '.join(twice)} is set in two places; leave it to the table of keys, or to one launcher's part."
            )
        merged |= part
    return merged


def shortened(config: Config) -> str:
    """A sentence on the warm-up and decay of a run that is too short for them; empty if it is not."""
    train = config.train
    if (train.warmup_steps, train.lr_decay_steps) == train.slopes:
        return ""
    rise, fall = train.slopes
    both = train.lr_decay_steps > 0
    asked = f"a warm-up of {train.warmup_steps}" + f" and a decay of {train.lr_decay_steps}" * both
    taken = f"they are shortened to {rise} and {fall}" if both else f"it is shortened to {rise}"
    keys = "train.warmup_steps" + " and train.lr_decay_steps" * both
    return (
        f"train.steps {train.steps} is too few for {asked}: {taken}; raise train.steps, or set {keys}, to change that."
    )
