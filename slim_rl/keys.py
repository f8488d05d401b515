"""What each key of the config is called by the trainers. The verl launcher is driven by this table, docs/config_keys.md is
printed from it (`python -m slim_rl.keys`), and tests hold it against the real TRL and verl and slime's launch script.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """One key of slim_rl's config.

    Attributes:
        name: dotted, as in a config file.
        slime: its launch flags; none where slime has no such thing or the hook does it.
        trl: fields of TRL's GRPOConfig.
        verl: hydra keys. The launcher writes the value to each of them as it is.
        note: what a reader must know besides.
    """

    name: str
    slime: tuple[str, ...] = ()
    trl: tuple[str, ...] = ()
    verl: tuple[str, ...] = ()
    note: str = ""


_ACTOR, _ROLLOUT, _CRITIC = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "critic"

KEYS: tuple[Key, ...] = (
    Key("seed", ("--rollout-seed",), ("seed",), ("data.seed", f"{_ROLLOUT}.seed", f"{_ACTOR}.data_loader_seed")),
    Key("policy.model", ("--hf-checkpoint",), (), ("actor_rollout_ref.model.path",), "TRL takes the model itself"),
    Key("policy.temperature", ("--rollout-temperature",), ("temperature",), (f"{_ROLLOUT}.temperature",)),
    Key("policy.top_p", ("--rollout-top-p",), ("top_p",), (f"{_ROLLOUT}.top_p",)),
    Key("policy.thinking", note="the dialogue loop passes it to the chat template as enable_thinking"),
    Key("train.backend", note="which trainer `slim-rl train` starts"),
    Key("train.steps", ("--num-rollout",), ("max_steps",), ("trainer.total_training_steps",)),
    Key(
        "train.games_per_step",
        ("--rollout-batch-size",),
        (),
        ("data.train_batch_size", f"{_ACTOR}.ppo_mini_batch_size"),
        "TRL counts dialogues: games_per_step × group_size",
    ),
    Key("train.group_size", ("--n-samples-per-prompt",), ("num_generations",), (f"{_ROLLOUT}.n",)),
    Key(
        "train.micro_batch",
        (),
        ("per_device_train_batch_size",),
        (),
        "slime and verl pack by tokens: --max-tokens-per-gpu, ppo_max_token_len_per_gpu",
    ),
    Key("train.learning_rate", ("--lr",), ("learning_rate",), (f"{_ACTOR}.optim.lr",)),
    Key(
        "train.lr_schedule",
        ("--lr-decay-style",),
        ("lr_scheduler_type",),
        (f"{_ACTOR}.optim.lr_scheduler_type",),
        "verl has constant and cosine",
    ),
    Key("train.warmup_steps", ("--lr-warmup-iters",), ("warmup_steps",), (f"{_ACTOR}.optim.lr_warmup_steps",)),
    Key(
        "train.max_grad_norm",
        ("--clip-grad",),
        ("max_grad_norm",),
        (f"{_ACTOR}.optim.clip_grad", f"{_ACTOR}.grad_clip"),
    ),
    Key(
        "train.clip_ratio",
        ("--eps-clip",),
        ("epsilon",),
        (f"{_ACTOR}.clip_ratio", f"{_ACTOR}.clip_ratio_low", f"{_ACTOR}.clip_ratio_high"),
    ),
    Key(
        "train.kl_coef",
        ("--kl-loss-coef",),
        ("beta",),
        (f"{_ACTOR}.kl_loss_coef", "algorithm.kl_ctrl.kl_coef"),
        "verl.kl says which of the two counts",
    ),
    Key(
        "train.scale_rewards",
        ("--disable-grpo-std-normalization",),
        ("scale_rewards",),
        ("algorithm.norm_adv_by_std_in_grpo",),
        "slime's flag is the opposite",
    ),
    Key("train.save_every", ("--save-interval",), ("save_steps",), ("trainer.save_freq",)),
    Key(
        "train.keep_checkpoints",
        (),
        ("save_total_limit",),
        ("trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep"),
        "slime keeps all",
    ),
    Key(
        "train.gradient_checkpointing",
        (),
        ("gradient_checkpointing",),
        ("actor_rollout_ref.model.enable_gradient_checkpointing",),
        "slime: the launch script's recompute flags",
    ),
    Key(
        "train.report_to",
        ("--use-wandb", "--use-tensorboard"),
        ("report_to",),
        (),
        "verl: trainer.logger, console besides",
    ),
    Key(
        "limits.dialogue_tokens",
        ("--rollout-max-response-len",),
        ("max_completion_length",),
        ("data.max_response_length",),
        "6144 for slime and verl if not set",
    ),
    Key(
        "limits.context_tokens",
        ("--rollout-max-context-len",),
        (),
        (),
        "verl: data.max_prompt_length + max_response_length",
    ),
    Key("limits.turn_tokens", note="the dialogue loop asks for so many tokens a turn, in every backend"),
    Key("limits.seconds", note="the dialogue loop's, in every backend"),
    Key("game.max_turns", note="the environment's, in every backend"),
    Key("verl.adv_estimator", ("--advantage-estimator",), (), ("algorithm.adv_estimator",), "TRL has GRPO only"),
    Key("verl.gamma", ("--gamma",), (), ("algorithm.gamma",)),
    Key("verl.lam", ("--lambd",), (), ("algorithm.lam",)),
    Key("verl.engine", (), (), (f"{_ROLLOUT}.name",), "slime: SGLang; TRL: the model itself"),
    Key("verl.kl_control", (), (), ("algorithm.kl_ctrl.type",)),
    Key("verl.kl_target", (), (), ("algorithm.kl_ctrl.target_kl",)),
    Key("verl.kl_horizon", (), (), ("algorithm.kl_ctrl.horizon",)),
    Key("verl.critic_model", (), (), (f"{_CRITIC}.model.path",)),
    Key("verl.critic_learning_rate", (), (), (f"{_CRITIC}.optim.lr",)),
    Key("verl.reference_model", ("--ref-load",), (), (), "verl: see docs/verl.md"),
    Key("verl.prompt_tokens", ("--rollout-max-prompt-len",), (), ("data.max_prompt_length",)),
    Key("verl.gpus", ("--actor-num-gpus-per-node",), (), ("trainer.n_gpus_per_node",)),
    Key("verl.nodes", ("--actor-num-nodes",), (), ("trainer.nnodes",)),
)


def table() -> str:
    """The table as Markdown."""
    rows = ["| slim_rl | slime | TRL (`GRPOConfig`) | verl | |", "|---|---|---|---|---|"]
    for key in KEYS:
        cells = ["<br>".join(f"`{name}`" for name in names) for names in ((key.name,), key.slime, key.trl, key.verl)]
        rows.append("| " + " | ".join([*cells, key.note]) + " |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(table(), end="")
