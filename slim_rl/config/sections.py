"""The sections of a config: their keys, defaults, bounds and meanings. docs/config.md and configs/matching.yaml are written from
them (`slim_rl.reference`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, SerializeAsAny, model_validator

from slim_rl.config.endpoint import ChatPolicyConfig, OpenAIConfig
from slim_rl.config.section import Section


class DataConfig(Section):
    """The games. Files are made when missing; train and eval never share a game."""

    train: Path = Path("data/games.jsonl")
    """games to train on"""
    eval: Path | None = None
    """held-out games; null: none"""
    num_train: int = Field(1000, ge=1)
    """games to make for train"""
    num_eval: int = Field(100, ge=0)
    """games to make for eval"""
    seed: int = Field(0, ge=0)
    """seed of the games; the order in which they are played follows the run's seed"""
    seat: Literal[0, 1, "both"] = 0
    """the policy's seat: 0 (speaks first), 1, or both (alternating from game to game)"""


class PartnerConfig(Section):
    """The player that the policy plays with."""

    kind: str = "shy"
    """a scripted partner of the game (shy, forthcoming, mute, erring, rephrased, yoked), openai, replay, self
    (self-play: both seats are the policy), or the dotted path of a partner of your own"""
    accept_fraction: float = Field(0.75, ge=0, le=1)
    """the partner accepts a plan that is worth at least this share of its own best plan"""
    doubts: bool = False
    """whether a rejection names the assignments that the partner doubts, which tells what was not asked"""
    args: dict[str, Any] = Field(default_factory=dict)
    """further keyword arguments of the partner's constructor, scripted or your own"""
    replay: Path | None = None
    """with kind replay: the dialogue log whose partner's turns are repeated; with kind yoked (matching game): the log whose
    partner's scores are told at the same turns, whatever the policy says"""
    openai: OpenAIConfig = OpenAIConfig()


class Limits(Section):
    """Limits of a dialogue. Each ends it with its own `StopReason`. null: no limit."""

    turn_tokens: int = Field(512, ge=1)
    """tokens the policy may sample in one turn; 2048 or more with thinking"""
    dialogue_tokens: int | None = Field(None, ge=1)
    """tokens of the whole response, including the partner's turns"""
    context_tokens: int | None = Field(None, ge=1)
    """prompt (about 1,000 tokens at 8×8) and response together"""
    truncated_turn: Literal["end", "continue"] = "end"
    """end: a turn that is cut at turn_tokens ends the game; continue: the text so far is played"""
    turn_seconds: float | None = Field(None, gt=0)
    """time of one policy turn; a dialogue with a longer one has failed: no reward, no training on it
    (partner.openai.turn_seconds limits the partner's)"""

    def within(
        self,
        *,
        turn_tokens: int | None = None,
        dialogue_tokens: int | None = None,
        context_tokens: Sequence[int | None] = (),
    ) -> Limits:
        """These limits, each made as narrow as the trainer's own bounds."""
        bounds = {
            "turn_tokens": (self.turn_tokens, turn_tokens),
            "dialogue_tokens": (self.dialogue_tokens, dialogue_tokens),
            "context_tokens": (self.context_tokens, *context_tokens),
        }
        given = {name: [bound for bound in several if bound is not None] for name, several in bounds.items()}
        return self.changed(**{name: min(several, default=None) for name, several in given.items()})


class PolicyConfig(Section):
    """The model that is trained."""

    model: str = "data/warmstart"
    """a local folder or a hub name; overridden by MODEL in scripts/run_matching.sh and by POLICY_MODEL in verl's scripts"""
    thinking: bool = False
    """for chat templates with `enable_thinking`, such as Qwen3's; thoughts are trained, and count in turn_tokens"""
    temperature: float = Field(1.0, gt=0)
    """of sampling, in training and evaluation"""
    top_p: float = Field(1.0, gt=0, le=1)
    """of sampling; below 1 slime must replay the truncation, and TRL's gradient ignores it"""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """of the weights (TRL)"""
    openai: ChatPolicyConfig = ChatPolicyConfig()


class LoraSection(Section):
    """LoRA adapters (peft)."""

    r: int = Field(16, ge=1)
    """rank"""
    alpha: int = Field(32, ge=1)
    """the adapters' output is scaled by alpha / r"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """dropout probability on the adapters' input"""
    target_modules: list[str] | Literal["all-linear"] = "all-linear"
    """names of the layers that get adapters"""


class TrainConfig(Section):
    """GRPO. One step plays `games_per_step` games, each `group_size` times."""

    backend: Literal["trl", "slime", "verl"] = "trl"
    """the trainer that slim-rl train starts"""
    steps: int = Field(150, ge=1)
    """training steps: one rollout and one update each"""
    games_per_step: int = Field(16, ge=1)
    """games of one rollout"""
    group_size: int = Field(8, ge=1)
    """dialogues of one game, compared with each other; 1 only if a critic is the baseline (verl's gae)"""
    learning_rate: float = Field(5e-5, gt=0)
    """learning rate of Adam"""
    lr_schedule: Literal["constant", "linear", "cosine", "wsd"] = "constant"
    """how the rate changes after the warm-up; wsd (warm-up, stable, decay): constant, then linearly to 0
    over the last `lr_decay_steps`"""
    lr_decay_steps: int = Field(0, ge=0)
    """steps at the end over which the rate falls; only for wsd, which needs it; shortened as warmup_steps is"""
    warmup_steps: int = Field(0, ge=0)
    """steps over which the rate rises from 0; in a run too short for it and the decay, both are shortened"""
    weight_decay: float = Field(0.0, ge=0)
    """weight decay of AdamW"""
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    """Adam's decay rate for the mean of gradients"""
    adam_beta2: float = Field(0.999, ge=0, lt=1)
    """Adam's decay rate for the mean of squared gradients; a lower value adapts faster when rewards drift"""
    kl_coef: float = Field(0.0, ge=0)
    """coefficient of the KL to the starting model in the loss; above 0 that model is loaded too, and takes memory"""
    clip_ratio: float = Field(0.2, gt=0)
    """PPO's clip range around a ratio of 1; on slime the upper clip is 1.4 times as wide"""
    max_grad_norm: float = Field(1.0, gt=0)
    """gradients are clipped to this norm"""
    micro_batch: int = Field(128, ge=1)
    """dialogues per forward and backward pass"""
    scale_rewards: bool = True
    """divide a group's advantages by its standard deviation; false: Dr. GRPO"""
    payment: str = "game"
    """what training gives the dialogues of a step; game: the game's reward; price: less what each question costs; agreed, shuffled: controls;
    turn_credit, expected_credit: advantages of single turns; or the dotted path of your own (`slim_rl.dialogue.payment`)"""
    payment_args: dict[str, Any] = Field(default_factory=dict)
    """arguments of the payment: price (a number, or a list of which each game has one, which the policy reads), zeros (shuffled), decay (credit
    by the turn)"""
    exploring_starts: float = Field(0.0, ge=0, le=1)
    """share of a step's dialogues whose first turn is a forced question (one of the game's `questions_worth_asking`), for a
    policy that hardly asks; it is trained on like the policy's own words"""
    exploring_steps: int | None = Field(None, ge=1)
    """steps over which that share falls linearly to 0; null: all steps of the run"""
    loss: Literal["sequence", "token", "constant"] | None = None
    """what the sum over tokens is divided by; sequence: each dialogue's own length; token: all dialogues' tokens;
    constant: the same number for every dialogue (Dr. GRPO); null: the trainer's default, token for TRL and verl,
    sequence for slime"""
    frozen: bool = False
    """play and log without updates (control)"""
    lora: LoraSection | None = None
    """adapters instead of all weights (TRL, verl); null: all weights"""
    stop_failures: float = Field(0.5, ge=0, le=1)
    """the run stops if more than this share of a step's dialogues fail"""
    save_every: int = Field(50, ge=1)
    """steps between checkpoints"""
    keep_checkpoints: int = Field(2, ge=1)
    """number of checkpoints to keep; older ones are deleted"""
    eval_every: int = Field(0, ge=0)
    """steps between evaluations on held-out games during training; 0: only before and after it on TRL; every save_every steps on verl;
    every 10 on slime, where EVAL_INTERVAL of the launch wins over this"""
    eval_games: int = Field(200, ge=0)
    """held-out games of an evaluation, before, during and after training, if data.eval names any (TRL; slime and verl play all of data.eval)"""
    eval_before: bool = True
    """play them before training too; if many runs share one start, once is enough (TRL)"""
    threads: int = Field(1, ge=1)
    """CPU threads of one process; 1 is the most reproducible"""
    processes: int = Field(1, ge=1)
    """processes that share a step's dialogues on one machine, without torchrun (TRL)"""
    report_to: tuple[Literal["tensorboard", "wandb", "mlflow", "trackio"], ...] = ()
    """trackers, in addition to the run's own files; slime has the first two, and turns wandb on if WANDB_API_KEY is set"""
    gradient_checkpointing: bool = False
    """recompute activations instead of storing them: less memory, more time"""

    @property
    def dialogues(self) -> int:
        """Dialogues of one step."""
        return self.games_per_step * self.group_size

    @property
    def slopes(self) -> tuple[int, int]:
        """Steps over which the rate rises and falls: `warmup_steps` and `lr_decay_steps`, each by its share where they fill more than
        the run, and never all of it rising: nothing would be learned.
        """
        rise, fall = self.warmup_steps, self.lr_decay_steps
        if rise + fall <= self.steps and rise < self.steps:
            return rise, fall
        fall = -(-fall * self.steps // (rise + fall))
        return min(rise, self.steps - max(fall, 1)), fall

    @model_validator(mode="after")
    def _wsd_decays(self) -> TrainConfig:
        if (self.lr_schedule == "wsd") != (self.lr_decay_steps > 0):
            raise ValueError(
                f"lr_schedule is {self.lr_schedule} and lr_decay_steps {self.lr_decay_steps}: wsd needs steps to decay in, and no other "
                "schedule has them (0)"
            )
        return self


class WarmstartConfig(Section):
    """The tiny model that local runs start from (`slim-rl lab warmstart`)."""

    start: str = ""
    """folder of a model to train further, with adapters if `train.lora` is set; empty: a new model"""
    both_seats: bool = False
    """demonstrate the partner's seat too, for self-play"""
    games: int = Field(16_000, ge=1)
    """number of demonstrations"""
    messages: list[NonNegativeFloat] = Field(
        [0.88, 0.015, 0.015, 0.015, 0.015, 0.015, 0.015, 0.015, 0.015], min_length=2
    )
    """shares of the demonstrations with 0, 1, 2, ... messages before the player proposes or guesses"""
    player: SerializeAsAny[Any] = None
    """how the game's own player plays the demonstrations"""
    lessons: dict[str, NonNegativeInt] | None = None
    """number of further games for each of the game's lessons, which teach how to play but not whether to ask; null: the game's
    defaults. Lessons of the matching game: seen: much of the table is seen and the plan is proposed at once;
    asked: proposed after questions, as many as in demonstrations that ask; told: proposed after being told the partner's whole table;
    gaps: as asked, but with few unseen scores, to teach which ones are left to ask (none by default)"""
    partners: dict[str, NonNegativeFloat] | None = Field(None, min_length=1)
    """share of each scripted partner in the demonstrations; null: the game's defaults"""
    epochs: float = Field(1, gt=0)
    """passes over the demonstrations"""
    batch_size: int = Field(8, ge=1)
    """demonstrations per step and process"""
    learning_rate: float = Field(2e-3, gt=0)
    """peak learning rate"""
    hidden_size: int = Field(128, ge=32, multiple_of=32)
    """hidden size of a new model"""
    layers: int = Field(4, ge=1)
    """layers of a new model"""
    vocab_size: int = Field(640, ge=300)
    """vocabulary size of a new tokenizer"""
    tokenizer_games: int = Field(500, ge=1)
    """number of demonstrations that a new tokenizer is trained on"""

    @model_validator(mode="after")
    def _some_share_is_positive(self) -> WarmstartConfig:
        for name, shares in (("messages", self.messages), ("partners", (self.partners or {"": 1.0}).values())):
            if not sum(shares) > 0:
                raise ValueError(f"{name} are shares that are all 0: raise one of them")
        return self


class LogConfig(Section):
    """The dialogue log."""

    dir: Path = Path("logs")
    """folder of the dialogue logs, one JSON line a dialogue; on slime it is inside the run's folder"""
    tokens: bool = False
    """also log token ids, loss masks and logprobs (20 times larger)"""
