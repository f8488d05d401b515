"""The sections of a config that one trainer on a cluster reads, slime or verl."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from slim_rl.config.section import Section


class SlimeConfig(Section):
    """What the slime hook does where slime leaves the choice. `train.stop_failures` stops a run of failures here too."""

    warn_failures: float = Field(0.05, ge=0, le=1)
    """share of failed dialogues in a rollout above which a warning is logged"""
    min_survivors: float = Field(0.5, ge=0, le=1)
    """a group of which a smaller share was played is dropped, where another is being played in its place
    (over-sampling)"""
    drop_equal_rewards: bool = False
    """also drop groups whose played games all have one reward: they teach nothing, but cost a new group"""
    resume: Literal["replay", "restart"] = "replay"
    """with --partial-rollout, a game that slime aborted; replay: its recorded turns are played again and it goes on;
    restart: it begins again, as it also does where the weights are new and `new_weights` says so"""
    new_weights: Literal["restart", "mask", "keep"] = "restart"
    """a game that has begun when the weights change; restart: it begins again; mask: it goes on, its old tokens
    untrained; keep: it goes on"""
    engine_patience: float = Field(60.0, ge=0)
    """seconds to wait out an engine that answers with errors"""
    max_staleness: int = Field(3, ge=2)
    """ASYNC=full: training steps from a game's start to the step that trains on it, at most; one step's worth of
    groups less than that is being played (at least two)"""

    @property
    def steps_under_way(self) -> int:
        """ASYNC=full: steps' worth of groups that are being played. With one step to spare, a slow game may be overtaken by others."""
        return max(2, self.max_staleness - 1)


WITHOUT_GROUPS = ("gae", "reinforce_plus_plus", "remax")  # verl's estimators with a baseline for a lone dialogue


class VerlConfig(Section):
    """verl's trainer: PPO, GRPO and the others. The keys under `overrides` are verl's own and are applied last."""

    mode: Literal["multi_turn", "single_turn"] = "multi_turn"
    """multi_turn: the game is played out; single_turn: one answer of the policy is scored (needs a one-seat
    environment)"""
    engine: Literal["sglang", "vllm"] = "vllm"
    """what samples the policy"""
    adv_estimator: str = "grpo"
    """gae (with a critic), or grpo, reinforce_plus_plus, rloo, remax, or another that verl has"""
    gamma: float = Field(1.0, ge=0, le=1)
    """discount of a token's reward"""
    lam: float = Field(1.0, ge=0, le=1)
    """gae's trade of bias for variance"""
    kl: Literal["loss", "reward"] = "loss"
    """where train.kl_coef goes: a term of the loss, as GRPO has it, or in the reward, as PPO has it"""
    kl_control: Literal["fixed", "adaptive"] = "fixed"
    """the coefficient of a KL in the reward"""
    kl_target: float = Field(0.1, gt=0)
    """adaptive: KL it steers to, nats a token"""
    kl_horizon: int = Field(10_000, ge=1)
    """adaptive: dialogues over which it does so"""
    critic_model: str | None = None
    """where gae's critic starts; null: as the policy does; CRITIC_MODEL takes its place"""
    critic_learning_rate: float = Field(1e-5, gt=0)
    """Adam's, for the critic"""
    reference_model: str | None = None
    """what the KL is taken to; null: the policy's initial weights; REF_MODEL takes its place"""
    prompt_tokens: int = Field(2048, ge=1)
    """longest prompt; games with a longer one are left out"""
    gpus: int = Field(1, ge=1)
    """of one node"""
    nodes: int = Field(1, ge=1)
    """machines"""
    overrides: dict[str, Any] = Field(default_factory=dict)
    """verl's keys by their dotted names"""
