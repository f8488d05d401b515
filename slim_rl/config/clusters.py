"""Sections of a config that one trainer alone reads: TRL, slime or verl."""

from typing import Annotated, Any, Literal

from pydantic import Field

from slim_rl.config.section import ACTOR, PACE, ROLLOUT, Key, Section


class TrlConfig(Section):
    """TRL's trainer. The keys under `overrides` are TRL's own."""

    overrides: dict[str, Any] = Field(default_factory=dict)
    """fields of TRL's GRPOConfig that no other key sets, such as entropy_coef (a bonus for entropy) or delta"""


class SlimeConfig(Section):
    """Settings of the slime hook. `train.stop_failures` applies here too."""

    spare_games: int = Field(0, ge=0)
    """games that a step plays beyond train.games_per_step, to replace groups that are dropped"""
    min_survivors: float = Field(0.5, ge=0, le=1)
    """a group of which a smaller share succeeded is dropped, if a spare one can take its place"""
    drop_equal_rewards: bool = False
    """also drop groups whose games all have the same reward, which teach nothing unless turns have advantages of their own"""
    engine_retry_seconds: Annotated[float, PACE] = Field(60.0, ge=0)
    """seconds to wait out an engine that answers with errors"""


WITHOUT_GROUPS = ("gae", "reinforce_plus_plus")  # verl's estimators with a baseline for a lone dialogue


class VerlConfig(Section):
    """verl's trainer: PPO, GRPO and the others. The keys under `overrides` are verl's own and are applied last."""

    mode: Literal["multi_turn", "single_turn"] = "multi_turn"
    """multi_turn: the whole game is played; single_turn: one answer of the policy is scored (needs a one-seat
    environment)"""
    engine: Annotated[Literal["sglang", "vllm"], Key(verl=f"{ROLLOUT}.name", note="slime: SGLang; TRL: in process")] = (
        "vllm"
    )
    """what samples the policy"""
    adv_estimator: Annotated[
        str, Key(verl="algorithm.adv_estimator", note="slime: --advantage-estimator; TRL has GRPO only")
    ] = "grpo"
    """gae (with a critic), or grpo, reinforce_plus_plus, rloo, or another of verl's that needs no second rollout"""
    kl: Annotated[
        Literal["loss", "reward"],
        Key(
            verl={
                f"{ACTOR}.use_kl_loss": lambda where: where == "loss",
                "algorithm.use_kl_in_reward": lambda where: where == "reward",
            },
            note="neither if train.kl_coef is 0",
        ),
    ] = "loss"
    """term that train.kl_coef applies to: loss, as in GRPO, or reward, as in PPO"""
    critic_model: Annotated[str | None, Key(verl="critic.model.path")] = None
    """starting model of gae's critic; null: the policy's; CRITIC_MODEL overrides it"""
    reference_model: Annotated[str | None, Key(note="see verl.md; slime takes it from TORCH_DIST")] = None
    """reference model of the KL; null: the policy's initial weights; REF_MODEL overrides it"""
    prompt_tokens: Annotated[int, Key(verl="data.max_prompt_length", note="slime: --rollout-max-prompt-len")] = Field(
        2048, ge=1
    )
    """longest prompt; games with a longer prompt are left out"""
    gpus: Annotated[int, Key(verl="trainer.n_gpus_per_node", note="slime: NUM_GPUS")] = Field(1, ge=1)
    """GPUs of one node"""
    overrides: dict[str, Any] = Field(default_factory=dict)
    """verl's keys by their dotted names, such as algorithm.gamma, critic.optim.lr or trainer.nnodes"""
