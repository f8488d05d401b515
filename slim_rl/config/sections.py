"""The sections of a config: their keys, defaults, bounds and meanings. docs/reference/config.md and configs/matching.yaml are written from
them (`tools/reference_pages`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, SerializeAsAny, model_validator

from slim_rl.config.endpoint import ChatPolicyConfig, OpenAIConfig
from slim_rl.config.reading import checked
from slim_rl.config.section import (
    ACTOR,
    ASIDE,
    PACE,
    ROLLOUT,
    TRL_LOSS,
    TRL_SCHEDULE,
    VERL_LOSS,
    Key,
    OneOrMore,
    Section,
    same,
)


class DataConfig(Section):
    """The games. Files are made when missing; train and eval never share a game."""

    train: Annotated[Path, Key(is_read=True)] = Path("data/games.jsonl")
    """games to train on"""
    eval: Annotated[Path | None, Key(is_read=True, decides=False)] = None
    """held-out games; null: none"""
    num_train: int = Field(1000, ge=1)
    """games to make for train"""
    num_eval: Annotated[int, ASIDE] = Field(100, ge=0)
    """games to make for eval"""
    seed: int = Field(0, ge=0, lt=2**63)
    """seed of the games; the order in which they are played follows the run's seed"""
    seat: Literal[0, 1, "both"] = 0
    """the policy's seat: 0 (speaks first), 1, or both (alternating from game to game)"""


class Member(Section):
    """Partner of a mixture. A number in its place is its share."""

    share: NonNegativeFloat
    """share of the games, relative to those of the others"""
    kind: str = ""
    """as partner.kind; empty: its name"""
    args: dict[str, Any] = Field(default_factory=dict)
    """changes of partner.args"""
    openai: dict[str, Any] = Field(default_factory=dict)
    """changes of partner.openai"""

    @model_validator(mode="before")
    @classmethod
    def _may_be_its_share(cls, value: Any) -> Any:
        return value if isinstance(value, Mapping | Member) else {"share": value}


def _can_be_drawn(mixture: dict[str, Member]) -> dict[str, Member]:
    if mixture and not sum(member.share for member in mixture.values()) > 0:
        raise ValueError("the shares are all 0: raise one of them")
    if dotted := [name for name in mixture if "." in name]:
        raise ValueError(f"{dotted[0]!r} is a path: name its partner, as in {{mine: {{share: 1, kind: {dotted[0]}}}}}")
    return mixture


Mixture = Annotated[dict[str, Member], AfterValidator(_can_be_drawn)]


class PartnerConfig(Section):
    """The player that the policy plays with."""

    kind: str = "shy"
    """scripted partner of the game (shy, forthcoming, mute, erring, rephrased, yoked), openai, self (self-play), or the
    dotted path of a custom partner"""
    args: dict[str, Any] = Field(default_factory=dict)
    """arguments of the partner's class; in the matching game accept_fraction, max_pairs, wordings, answers, errs and replay (how-to/partners.md)"""
    mixture: Mixture | None = None
    """several partners in place of kind, with their shares of the games (how-to/partners.md):
    {shy: 0.7, gpt: {share: 0.3, kind: openai}}"""
    openai: OpenAIConfig = OpenAIConfig()

    def changed(self, **values: Any) -> Self:
        """See `Section.changed`; another kind replaces a mixture."""
        if "mixture" in values:
            values["mixture"] = checked(PartnerConfig, {"mixture": values["mixture"]}, "partner").mixture
        return super().changed(**(({"mixture": None} if "kind" in values else {}) | values))


class Limits(Section):
    """Limits of a dialogue. Each ends it with its own `StopReason`. null: no limit."""

    turn_tokens: Annotated[int, Key(note="applied by the dialogue loop, in every backend")] = Field(512, ge=1)
    """tokens the policy may sample in one turn; 2048 or more with thinking"""
    dialogue_tokens: Annotated[
        int | None,
        Key(
            "--rollout-max-response-len",
            "max_completion_length",
            "data.max_response_length",
            "6144 for slime and verl if not set; context_tokens or 4096 for TRL",
        ),
    ] = Field(None, ge=1)
    """tokens of the whole response, including the partner's turns"""
    context_tokens: Annotated[
        int | None,
        Key(
            "--rollout-max-context-len",
            note="8192 for slime if not set; verl: verl.prompt_tokens + limits.dialogue_tokens",
        ),
    ] = Field(None, ge=1)
    """prompt (about 1,000 tokens at 8×8) and response together"""
    truncated_turn: Literal["end", "continue"] = "end"
    """end: a turn that is cut at turn_tokens ends the game; continue: the text so far is played"""
    turn_seconds: Annotated[float | None, Key(note="applied by the dialogue loop, in every backend")] = Field(
        None, gt=0
    )
    """time of one turn of any player; a dialogue with a longer one has failed: no reward, no training on it
    (partner.openai.turn_seconds limits an endpoint's)"""

    def within(self, **bounds: int | None) -> "Limits":
        """Returns these limits, each of them at most a trainer's own bound; None: no bound."""
        limits = {name: getattr(self, name) for name in bounds}
        return self.changed(
            **{
                name: bound
                for name, bound in bounds.items()
                if bound is not None and (limits[name] is None or bound < limits[name])
            }
        )


class PolicyConfig(Section):
    """The model that is trained."""

    model: Annotated[
        str, Key("--hf-checkpoint", verl="actor_rollout_ref.model.path", note="TRL gets the loaded model", is_read=True)
    ] = "data/warmstart"
    """a local folder or a hub name; overridden by MODEL in scripts/run_matching.sh and by POLICY_MODEL in verl's scripts"""
    thinking: Annotated[bool, Key(note="the dialogue loop passes it to the chat template as enable_thinking")] = False
    """for chat templates with `enable_thinking`, such as Qwen3's; thoughts are trained, and count in turn_tokens"""
    temperature: Annotated[float, Key("--rollout-temperature", "temperature", f"{ROLLOUT}.temperature")] = Field(
        1.0, gt=0
    )
    """sampling temperature in training and evaluation"""
    top_p: Annotated[float, Key("--rollout-top-p", "top_p", f"{ROLLOUT}.top_p")] = Field(1.0, gt=0, le=1)
    """nucleus sampling; below 1 slime must replay the truncation, and TRL's gradient ignores it"""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """type of the weights (TRL); a processor without bfloat16 instructions computes in float32, with a note"""
    openai: ChatPolicyConfig = ChatPolicyConfig()


class LoraSection(Section):
    """LoRA adapters (peft)."""

    r: int = Field(16, ge=1)
    """rank"""
    alpha: int = Field(32, ge=1)
    """the adapters' output is scaled by alpha / r"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """dropout probability on the adapters' input"""
    target_modules: Literal["all-linear"] | Annotated[list[str], OneOrMore] = Field(
        "all-linear", union_mode="left_to_right"
    )
    """names of the layers that get adapters"""


class TrainConfig(Section):
    """GRPO. One step plays `games_per_step` games, each `group_size` times."""

    backend: Literal["trl", "slime", "verl"] = "trl"
    """the trainer that slim-rl train starts"""
    steps: Annotated[int, Key("--num-rollout", "max_steps", "trainer.total_training_steps", may_change=True)] = Field(
        150, ge=1
    )
    """training steps: one rollout and one update each"""
    games_per_step: Annotated[
        int,
        Key(
            verl="data.train_batch_size",
            note="slime: --rollout-batch-size, with slime.spare_games; TRL counts dialogues: games_per_step × group_size, which is also "
            "slime's --global-batch-size; in self-play TRL plays half as many games, slime and verl as many, with a dialogue per seat",
        ),
    ] = Field(16, ge=1)
    """games of one rollout"""
    group_size: Annotated[int, Key("--n-samples-per-prompt", "num_generations", f"{ROLLOUT}.n")] = Field(8, ge=1)
    """dialogues of one game, compared with each other; 1 only if a critic is the baseline (verl's gae)"""
    learning_rate: Annotated[float, Key("--lr", "learning_rate", f"{ACTOR}.optim.lr")] = Field(5e-5, gt=0)
    """learning rate of Adam"""
    lr_schedule: Annotated[
        Literal["constant", "linear", "cosine", "wsd"],
        Key(
            {"--lr-decay-style": lambda schedule: "WSD" if schedule == "wsd" else schedule},
            {"lr_scheduler_type": lambda schedule: TRL_SCHEDULE.get(schedule, schedule)},
            f"{ACTOR}.optim.lr_scheduler_type",
            "verl has constant and cosine",
        ),
    ] = "constant"
    """how the rate changes after the warm-up; wsd (warm-up, stable, decay): constant, then linearly to 0
    over the last `lr_decay_steps`"""
    lr_decay_steps: Annotated[
        int,
        Key(
            {
                "--lr-wsd-decay-iters": lambda steps: steps or None,
                "--lr-wsd-decay-style": lambda steps: "linear" if steps else None,
            },
            {
                "lr_scheduler_kwargs": lambda steps: (
                    {"num_decay_steps": steps, "decay_type": "linear"} if steps else None
                )
            },
        ),
    ] = Field(0, ge=0)
    """steps at the end over which the rate falls; only for wsd, which needs it; shortened as warmup_steps is"""
    warmup_steps: Annotated[int, Key("--lr-warmup-iters", "warmup_steps", f"{ACTOR}.optim.lr_warmup_steps")] = Field(
        0, ge=0
    )
    """steps over which the rate rises from 0; in a run too short for it and the decay, both are shortened"""
    weight_decay: Annotated[
        float, Key("--weight-decay", "weight_decay", f"{ACTOR}.optim.weight_decay critic.optim.weight_decay")
    ] = Field(0.0, ge=0)
    """weight decay of AdamW"""
    adam_beta1: Annotated[float, Key("--adam-beta1", "adam_beta1", note="verl: optim.betas, both in one")] = Field(
        0.9, ge=0, lt=1
    )
    """Adam's decay rate for the mean of gradients"""
    adam_beta2: Annotated[float, Key("--adam-beta2", "adam_beta2", note="verl: optim.betas, both in one")] = Field(
        0.999, ge=0, lt=1
    )
    """Adam's decay rate for the mean of squared gradients; a lower value adapts faster when rewards drift"""
    kl_coef: Annotated[
        float,
        Key(  # One term in all three: an estimate that is never negative (k3), with the gradient of the KL itself, which is not the
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
                f"{ACTOR}.kl_loss_coef": same,
                f"{ACTOR}.kl_loss_type": lambda _: "k3+",
                "algorithm.kl_ctrl.kl_coef": same,
            },
            "the same unbiased gradient in all three; verl.kl says whether verl has it in the loss or in the reward",
        ),
    ] = Field(0.0, ge=0)
    """coefficient of the KL to the starting model in the loss; above 0 that model is loaded too, and takes memory"""
    clip_ratio: Annotated[
        float,
        Key(  # A wider upper clip lets rare good turns, such as a first question, grow (DAPO's clip-higher).
            {"--eps-clip": same, "--eps-clip-high": lambda clip: round(1.4 * clip, 4)},
            "epsilon",
            f"{ACTOR}.clip_ratio {ACTOR}.clip_ratio_low {ACTOR}.clip_ratio_high",
            "with one update per step the ratio is 1 and nothing is clipped",
        ),
    ] = Field(0.2, gt=0)
    """PPO's clip range around a ratio of 1; on slime the upper clip is 1.4 times as wide"""
    max_grad_norm: Annotated[
        float, Key("--clip-grad", "max_grad_norm", f"{ACTOR}.optim.clip_grad {ACTOR}.grad_clip")
    ] = Field(1.0, gt=0)
    """gradients are clipped to this norm"""
    micro_batch: Annotated[
        int,
        Key(
            trl="per_device_train_batch_size",
            note="slime and verl pack by tokens: --max-tokens-per-gpu, ppo_max_token_len_per_gpu",
            decides=False,
        ),
    ] = Field(128, ge=1)
    """dialogues per forward and backward pass"""
    scale_rewards: Annotated[
        bool,
        Key(  # Dr. GRPO: dividing by a group's deviation favours games whose dialogues all ended alike.
            {"--disable-grpo-std-normalization": lambda scale: not scale},
            {"scale_rewards": lambda scale: "group" if scale else "none"},
            "algorithm.norm_adv_by_std_in_grpo",
            "slime's flag is the opposite",
        ),
    ] = True
    """divide a group's advantages by its standard deviation; false: Dr. GRPO"""
    reward: Annotated[
        str,
        Key(
            note="the same function in every backend; of turns: slime's --custom-advantage-function-path, none in verl"
        ),
    ] = "game"
    """reward and advantages of a step's dialogues; game: the game's reward; price: minus a cost per question; agreed, shuffled: controls;
    turn_credit, expected_credit: advantages of single turns; or the dotted path of a class (`slim_rl.dialogue.training_reward`)"""
    reward_args: Annotated[dict[str, Any], Key(note="in every backend")] = Field(default_factory=dict)
    """arguments of the training reward; price: question cost, a number, or a list of which each game has one, in the policy's
    prompt; zeros: of shuffled; decay: of per-turn credit"""
    loss: Annotated[
        Literal["sequence", "token", "constant"] | None,
        Key(
            {"--calculate-per-token-loss": lambda loss: loss == "token"},
            {"loss_type": lambda loss: TRL_LOSS[loss or "token"]},
            {f"{ACTOR}.loss_agg_mode": lambda loss: VERL_LOSS[loss or "token"]},
            "slime has no constant",
        ),
    ] = None
    """divisor of the sum over tokens; sequence: each dialogue's own length; token: all dialogues' tokens;
    constant: the same number for every dialogue (Dr. GRPO); null: the trainer's default, token for TRL and verl,
    sequence for slime"""
    frozen: Annotated[bool, Key(note="the learning rate is 0, in every backend")] = False
    """play and log without updates (control)"""
    lora: LoraSection | None = None
    """adapters instead of all weights (TRL, verl); null: all weights"""
    stop_failures: Annotated[float, PACE] = Field(0.5, ge=0, le=1)
    """the run stops if more than this share of a step's dialogues fail"""
    save_every: Annotated[
        int, Key("--save-interval", "save_steps", "trainer.save_freq", may_change=True, decides=False)
    ] = Field(50, ge=1)
    """steps between checkpoints"""
    keep_checkpoints: Annotated[
        int,
        Key(
            trl="save_total_limit",
            verl="trainer.max_actor_ckpt_to_keep trainer.max_critic_ckpt_to_keep",
            note="slime deletes no checkpoint",
            may_change=True,
            decides=False,
        ),
    ] = Field(2, ge=1)
    """number of checkpoints to keep; older ones are deleted"""
    eval_every: Annotated[
        int,
        Key(
            {"--eval-interval": lambda every: every or None},
            {"eval_steps": lambda every: every or None},
            {"trainer.test_freq": lambda every: every or -1},
            may_change=True,
            decides=False,
        ),
    ] = Field(0, ge=0)
    """steps between evaluations on held-out games during training; 0: only before and after it on TRL; every save_every steps on verl;
    every 10 on slime"""
    eval_games: Annotated[int, PACE] = Field(200, ge=0)
    """held-out games of an evaluation, before, during and after training, if data.eval names any (TRL; slime and verl play all of data.eval)"""
    eval_before: Annotated[bool, ASIDE] = True
    """play them before training too; if many runs share one start, once is enough (TRL)"""
    threads: Annotated[int, ASIDE] = Field(1, ge=1)
    """CPU threads of one process; 1 is the most reproducible"""
    processes: Annotated[int, ASIDE] = Field(1, ge=1)
    """processes that share a step's dialogues on one machine, without torchrun (TRL); at most one per GPU"""
    report_to: Annotated[
        tuple[Literal["tensorboard", "wandb", "mlflow", "trackio"], ...],
        OneOrMore,
        Key(
            {"--use-wandb": lambda names: "wandb" in names, "--use-tensorboard": lambda names: "tensorboard" in names},
            {"report_to": lambda names: list(names) or "none"},
            {"trainer.logger": lambda names: ["console", *names]},
            decides=False,
        ),
    ] = ()
    """trackers, in addition to the run's files; slime has the first two, and uses wandb if WANDB_API_KEY is set"""
    gradient_checkpointing: Annotated[
        bool,
        Key(
            trl="gradient_checkpointing",
            verl="actor_rollout_ref.model.enable_gradient_checkpointing",
            note="on slime activations are always recomputed",
            decides=False,
        ),
    ] = False
    """recompute activations instead of storing them: less memory, more time (with TRL prompts are then not shared)"""

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
    def _wsd_decays(self) -> "TrainConfig":
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
    group_size: int = Field(1, ge=1)
    """demonstrations per game; with adapters the prompt that they share is computed once"""
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
    partners: Mixture | None = Field(None, min_length=1)
    """partners of the demonstrations with their shares, as partner.mixture; null: the game's defaults"""
    epochs: float = Field(1, gt=0)
    """passes over the demonstrations"""
    batch_size: int = Field(8, ge=1)
    """demonstrations per step, which `train.processes` share"""
    learning_rate: float = Field(2e-3, gt=0)
    """learning rate: constant for all weights, the peak of a cosine for adapters"""
    warmup_steps: int | None = Field(None, ge=0)
    """steps over which the rate of adapters rises from 0; null: a tenth of all steps, at most 50"""
    order: Literal["length", "random"] = "length"
    """batches of demonstrations; length: of like length; random: of any length, those of one game together"""
    hidden_size: int = Field(128, ge=32, multiple_of=32)
    """hidden size of a new model"""
    layers: int = Field(4, ge=1)
    """layers of a new model"""
    vocab_size: int = Field(640, ge=300)
    """vocabulary size of a new tokenizer"""
    tokenizer_games: int = Field(500, ge=1)
    """number of demonstrations that a new tokenizer is trained on"""

    @model_validator(mode="after")
    def _some_share_is_positive(self) -> "WarmstartConfig":
        if not sum(self.messages) > 0:
            raise ValueError("messages are shares that are all 0: raise one of them")
        return self


class LogConfig(Section):
    """The dialogue log."""

    tokens: bool = False
    """also log token ids, loss masks and logprobs (20 times larger)"""
