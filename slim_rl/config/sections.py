"""The sections of a config: their keys, defaults, bounds and meanings. docs/config.md and configs/matching.yaml are written from
them (`slim_rl.reference`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from slim_rl.config import hosted


class Section(BaseModel):
    """A part of the configuration: immutable, and strict about its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), use_attribute_docstrings=True)

    def changed(self, **values: Any) -> Self:
        """A copy with other values, unchecked; for a section within it, a mapping of those of its keys that change."""
        new = {}
        for name, value in values.items():
            old = getattr(self, name)
            new[name] = old.changed(**value) if isinstance(old, Section) and isinstance(value, Mapping) else value
        return self.model_copy(update=new)


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
    seed: int = 0
    """of the games themselves; the order in which they are played follows the run's seed"""
    seat: Literal[0, 1, "both"] = 0
    """the policy's seat: 0, which speaks first, 1, or both: every game from either side"""


class Price(Section):
    """What a model costs, in US dollars per million tokens."""

    input: float = Field(0.0, ge=0)
    """prompt tokens that were not cached"""
    cached: float = Field(0.0, ge=0)
    """prompt tokens the provider had cached"""
    output: float = Field(0.0, ge=0)
    """tokens of the reply"""


_PRICES = {
    name: Price(input=fresh, cached=cached, output=output) for name, (fresh, cached, output) in hosted.PRICES.items()
}


LEAST_CONCURRENCY, MOST_CONCURRENCY = 64, 1024  # of requests to an endpoint, where the config names no number


class OpenAIConfig(Section):
    """A partner behind an OpenAI-compatible endpoint. The key comes from the environment, never from here."""

    model: str = Field(
        "gpt-4.1-2025-04-14",
        description="a dated snapshot stays the same partner for the whole run; public pages date GPT-4.1's shutdown "
        f"{hosted.SHUTDOWNS['gpt-4.1']} (not verified), successors are in docs/partners.md",
    )
    base_url: str | None = None
    """such as http://localhost:8100/v1 for a model of your own; null: OpenAI"""
    api_key_env: str = "OPENAI_API_KEY"
    """environment variable that holds the key; optional with a base_url"""
    prompt: Path | None = None
    """file with the partner's rules; null: the game's own"""

    temperature: float | None = Field(0.0, ge=0)
    """null: not sent; where the model refuses it, it is left out and the log says so"""
    top_p: float | None = Field(None, gt=0, le=1)
    """null: not sent; where refused, as temperature"""
    max_tokens: int | None = Field(300, ge=1)
    """tokens of one reply, thoughts included; sent as max_completion_tokens where the model wants that; null: not
    sent"""
    reasoning_effort: str | None = None
    """how long a reasoning model thinks: minimal, low, medium, high; null: not sent"""
    send_seed: bool = True
    """send a seed drawn from the dialogue's, for endpoints that know it"""
    extra: dict[str, Any] = {}
    """further keys of the request body, such as chat_template_kwargs"""
    note_plan_worth: bool = True
    """a note under each proposal says what it is worth to the partner, which need not add up then"""
    malformed_retries: int = Field(2, ge=0)
    """times a malformed reply is asked again, with the game's error"""

    reply_chars: int = Field(8000, ge=1)
    """a longer reply counts as cut off, and is asked again"""
    response_bytes: int = Field(2_000_000, ge=1000)
    """of one response; a longer one is not read to its end, and is a fault"""

    concurrency: int | None = Field(
        None,
        ge=1,
        description="requests in flight, of all dialogues of a process together; null: as many as a step has dialogues "
        f"(train.games_per_step × train.group_size), but at least {LEAST_CONCURRENCY} and at most {MOST_CONCURRENCY}",
    )
    requests_per_minute: float | None = Field(None, gt=0)
    """your account's limit, kept by waiting; null: none"""
    tokens_per_minute: float | None = Field(None, gt=0)
    """the same for tokens, input and output together"""
    request_seconds: float = Field(60.0, gt=0)
    """wall time of one request"""
    turn_seconds: float = Field(300.0, gt=0)
    """wall time of one reply, retries included, queueing not"""
    max_retries: int = Field(8, ge=0)
    """times a failed request is made again; a rate limit (429) is no failure"""
    backoff_seconds: float = Field(0.5, gt=0)
    """first wait before a retry; doubles, with full jitter"""
    max_backoff_seconds: float = Field(20.0, gt=0)
    """the longest of these waits"""

    outage_failures: int = Field(8, ge=1)
    """failures in a row, over all games, that mean the endpoint is down, if nothing was answered for outage_seconds"""
    outage_seconds: float = Field(5.0, ge=0)
    """see outage_failures"""
    outage_probe_seconds: float = Field(10.0, gt=0)
    """wait between probes of an endpoint that is down"""
    outage_wait_minutes: float = Field(15.0, ge=0)
    """the longest that calls wait for it; then the run stops, to be resumed"""

    budget_usd: float | None = Field(None, gt=0)
    """of the whole run, over all its starts and processes; calls stop here, after a save; needs a price for the
    model (`prices`); the start says what a run may cost"""
    budget_reserve: float = Field(0.05, ge=0, lt=1)
    """share of the budget kept to finish games that have begun"""
    prices: dict[str, Price] = Field(
        _PRICES,
        description="by the model's name, which a snapshot's date may follow; the built-in table is of "
        f"{hosted.AS_OF} and not verified, and your bill decides",
    )

    cassette: Path | None = None
    """sqlite file that keeps every exchange"""
    cassette_mode: Literal["auto", "record", "replay"] = "auto"
    """auto: ask the endpoint only what the cassette does not hold; record: ask everything again; replay: ask nothing"""


class PartnerConfig(Section):
    """Who sits opposite the policy."""

    kind: str = "shy"
    """a scripted partner of the game (shy, forthcoming, mute, erring, rephrased, yoked), openai, replay, self
    (self-play: both seats are the policy), or the dotted path of a partner of your own"""
    accept_fraction: float = Field(0.75, ge=0, le=1)
    """a plan is accepted that is worth this share of the partner's own best plan"""
    doubts: bool = False
    """whether a rejection names the assignments that the partner doubts, which tells what was not asked"""
    args: dict[str, Any] = Field(default_factory=dict)
    """further keyword arguments of the partner's constructor, scripted or your own"""
    replay: Path | None = None
    """with kind replay: the dialogue log whose partner's turns are repeated; with kind yoked: of the matching game,
    the one whose partner's scores are told at the same turns, whatever is said"""
    openai: OpenAIConfig = OpenAIConfig()


class Limits(Section):
    """When a dialogue has had enough. Each limit ends it with its own `StopReason`. null: no limit."""

    turn_tokens: int = Field(512, ge=1)
    """tokens the policy may sample in one turn; 2048 or more with thinking"""
    dialogue_tokens: int | None = Field(None, ge=1)
    """tokens of the response, the partner's turns included"""
    context_tokens: int | None = Field(None, ge=1)
    """prompt (about 1,000 tokens at 8×8) and response together"""
    truncated_turn: Literal["end", "continue"] = "end"
    """end: a turn cut at turn_tokens ends the game; continue: the text so far is played"""
    seconds: float | None = Field(None, gt=0)
    """time that the policy's turns and the game's work take; waiting for the partner's endpoint does not count
    (partner.openai.turn_seconds bounds that); a dialogue that takes longer has failed: no reward, no training on
    it"""

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


class ChatPolicyConfig(OpenAIConfig):
    """A chat model behind an OpenAI-compatible endpoint in the policy's place (`slim-rl evaluate --policy openai:MODEL`). It plays by
    text alone. The other keys are those of `partner.openai`.
    """

    model: str = ""
    """--policy openai:MODEL names it"""
    prompt: Path | None = None
    """file with instructions, put after the game's rules; null: none"""
    temperature: float | None = Field(1.0, ge=0)
    """as policy.temperature; null: not sent"""
    max_tokens: int | None = Field(512, ge=1)
    """tokens of one turn, as limits.turn_tokens; a turn that is cut ends its game; null: not sent"""


class PolicyConfig(Section):
    """The model that is trained."""

    model: str = "data/warmstart"
    """a local folder or a hub name; MODEL of scripts/run_matching.sh takes its place, POLICY_MODEL of verl's"""
    thinking: bool = False
    """for chat templates that know `enable_thinking`, as Qwen3's; thoughts are trained, and count in turn_tokens"""
    temperature: float = Field(1.0, gt=0)
    """of sampling, in training and evaluation alike"""
    top_p: float = Field(1.0, gt=0, le=1)
    """of sampling; below 1 slime must replay the truncation, and TRL's gradient ignores it"""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """of the weights, where TRL trains"""
    openai: ChatPolicyConfig = ChatPolicyConfig()


class LoraSection(Section):
    """LoRA adapters (peft)."""

    r: int = Field(16, ge=1)
    """rank"""
    alpha: int = Field(32, ge=1)
    """the adapters' output is scaled by alpha / r"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """chance, on the adapters' input"""
    target_modules: list[str] | Literal["all-linear"] = "all-linear"
    """names of the layers that get adapters"""


class TrainConfig(Section):
    """GRPO. One step plays `games_per_step` games, each `group_size` times."""

    backend: Literal["trl", "slime", "verl"] = "trl"
    """the trainer that slim-rl train starts"""
    steps: int = Field(150, ge=1)
    """rollouts, one update each"""
    games_per_step: int = Field(16, ge=1)
    """games of one rollout"""
    group_size: int = Field(8, ge=1)
    """dialogues of one game, compared with each other; 1 only where a critic is the baseline (verl's gae)"""
    learning_rate: float = Field(5e-5, gt=0)
    """Adam's"""
    lr_schedule: Literal["constant", "linear", "cosine", "wsd"] = "constant"
    """how the rate changes after the warm-up; wsd (warm-up, stable, decay): not at all, until it falls to 0 in a
    line over the last `lr_decay_steps`"""
    lr_decay_steps: int = Field(0, ge=0)
    """steps at the end over which the rate falls; for wsd, which needs it; shortened as warmup_steps is"""
    warmup_steps: int = Field(0, ge=0)
    """steps over which the rate rises from 0; in a run too short for it and the decay, both are shortened"""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's: what weights lose a step, as a share of the learning rate"""
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    """Adam's memory of gradients, from one step to the next"""
    adam_beta2: float = Field(0.999, ge=0, lt=1)
    """Adam's memory of their squares; lower forgets sooner, as the policy's rewards drift"""
    kl_coef: float = Field(0.0, ge=0)
    """KL to the starting model, in the loss; above 0 that model is loaded too, and takes memory"""
    clip_ratio: float = Field(0.2, gt=0)
    """how far PPO's ratio may leave 1; on slime the upper clip is 1.4 times as wide"""
    max_grad_norm: float = Field(1.0, gt=0)
    """longer gradients are shortened to this"""
    micro_batch: int = Field(128, ge=1)
    """dialogues a forward and backward pass"""
    scale_rewards: bool = True
    """divide a group's advantages by its standard deviation; false: Dr. GRPO"""
    reward: Literal["game", "agreed", "shuffled", "shuffled_all"] = "game"
    """what a dialogue is paid: the game's reward, or for controls: agreed: 1 for any agreement, else 0; shuffled:
    rewards above 0 permuted within a group; shuffled_all: all of them"""
    question_price: float = Field(0.0, ge=0)
    """taken off what is paid for each turn that seeks information; `reward` stays what it was without"""
    credit: Literal["dialogue", "turn"] = "dialogue"
    """whose advantage a token has: its dialogue's, or its turn's own, by potential-based shaping with the state
    value, the reward expected by what the policy knew (the game's `state_values`)"""
    credit_lambda: float = Field(1.0, ge=0, le=1)
    """with credit turn: how much of what a later turn earns goes to an earlier one; 1: all, and shaping is a
    baseline that moves no expectation; 0: a question earns only what its answer was worth"""
    loss: Literal["sequence", "token", "constant"] | None = None
    """what the sum over tokens is divided by; sequence: each dialogue's own length; token: all dialogues' tokens;
    constant: the same number for every dialogue (Dr. GRPO); null: the trainer's default, token for TRL and verl,
    sequence for slime"""
    frozen: bool = False
    """play and log without any update (control)"""
    lora: LoraSection | None = None
    """adapters instead of all weights (TRL, verl); null: all weights"""
    stop_failures: float = Field(0.5, ge=0, le=1)
    """share of failed dialogues in a step that stops the run"""
    save_every: int = Field(50, ge=1)
    """steps between checkpoints"""
    keep_checkpoints: int = Field(2, ge=1)
    """the newest ones; older are deleted"""
    eval_games: int = Field(200, ge=0)
    """held-out games played before and after training"""
    eval_before: bool = True
    """before it too; where many runs have one start, once is enough (TRL)"""
    threads: int = Field(1, ge=1)
    """CPU threads of one process; 1 is steadiest"""
    processes: int = Field(1, ge=1)
    """processes that share a step's dialogues, on a machine without torchrun"""
    report_to: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """trackers, in addition to the run's own files; on slime wandb is also on where WANDB_API_KEY is set"""
    gradient_checkpointing: bool = False
    """recompute activations instead of keeping them: less memory, more time"""

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


class WarmstartConfig(Section):
    """The tiny model that local runs start from (`slim-rl warmstart`)."""

    start: str = ""
    """folder of a model to teach further; empty: a new one"""
    both_seats: bool = False
    """demonstrate the partner's seat too, for self-play"""
    games: int = Field(16_000, ge=1)
    """demonstrations"""
    messages: list[float] = Field([0.88, 0.015, 0.015, 0.015, 0.015, 0.015, 0.015, 0.015, 0.015], min_length=2)
    """in them: the share with 0, 1, 2, ... messages before the first proposal"""
    lessons: dict[Literal["seen", "asked", "told"], int] = {"seen": 44_000, "asked": 26_000, "told": 4_000}
    """further games, which teach how to ask and to propose, but not whether to ask: proposed on at once, with much
    of the table seen; after questions, as many as where a demonstration asks; after being told the partner's
    whole table"""
    partners: dict[Literal["shy", "forthcoming", "mute"], float] = Field(
        {"shy": 0.6, "forthcoming": 0.2, "mute": 0.2}, min_length=1
    )
    """share of each scripted partner in them"""
    epochs: float = Field(1, gt=0)
    """passes over the demonstrations"""
    batch_size: int = Field(8, ge=1)
    """demonstrations a step and process"""
    learning_rate: float = Field(2e-3, gt=0)
    """its peak"""
    hidden_size: int = Field(128, ge=32, multiple_of=32)
    """of a new model"""
    layers: int = Field(4, ge=1)
    """of a new model"""
    vocab_size: int = Field(640, ge=300)
    """of a new tokenizer"""
    tokenizer_games: int = Field(500, ge=1)
    """of the demonstrations, those the tokenizer is trained on"""


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


class LogConfig(Section):
    """The dialogue log."""

    dir: Path = Path("logs")
    """folder of the dialogue logs, one JSON line a dialogue; on slime it is made in the run's folder"""
    tokens: bool = False
    """keep token ids and masks too (20 times larger)"""
