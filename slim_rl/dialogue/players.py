"""Players of a dialogue: by text (`Partner`) or by tokens (`Policy`), and the player that writes the policy's tokens (`TokenPlayer`).

Invariants:
    A player by text keeps no state of a dialogue between calls: the view holds all of it, and one player serves all dialogues of a process.
    Its turn depends on the view alone, the seed included.
    The tokens of a dialogue stand in its record alone, which only grows at its end; every engine call reads prompt_ids + response_ids.
"""

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from slim_rl.config import LEAST_CONCURRENCY, MOST_CONCURRENCY, Config, Limits, PartnerConfig, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.record import Dialogue, DialogueOver, StopReason, Turn, Usage
from slim_rl.environment import View, arguments_for
from slim_rl.errors import ConfigError, misfit

log = logging.getLogger(__name__)


class PartnerFailure(DialogueOver):
    """Exception for a missing reply after all retries.

    Args:
        message: the cause.
        usage: cost of the calls; None without any.
        thought: reasoning that came without a reply; None without any.
    """

    def __init__(
        self,
        message: str,
        reason: StopReason = StopReason.PARTNER_FAILED,
        usage: Usage | None = None,
        thought: str | None = None,
    ) -> None:
        super().__init__(reason, message)
        self.usage, self.thought = usage, thought


class PolicyFailure(DialogueOver):
    """Exception for an engine that gave no tokens, after all retries; the message is the cause."""

    def __init__(self, message: str, reason: StopReason = StopReason.ENGINE_FAILED) -> None:
        super().__init__(reason, message)


class Player(ABC):  # noqa: B024
    """Player of a seat: a `Partner` by text, or a `Policy` by tokens.

    Class attributes:
        reads_tokens: it samples tokens; False: it reads and writes text.
        costs_money: its turns may cost money.
        limits_itself: it has a time limit of its own per turn, in place of limits.turn_seconds.

    Attributes:
        max_context: tokens that it can read and write in a dialogue; None: no limit of its own.
    """

    reads_tokens: bool = False
    costs_money: ClassVar[bool] = False
    limits_itself: ClassVar[bool] = False
    max_context: int | None = None

    if TYPE_CHECKING:  # a property, or an attribute that the class or its constructor sets

        @property
        def identity(self) -> dict[str, Any]:
            """Kind, model and settings for the dialogue records, JSON-able and without secrets."""

    @property
    def stopped(self) -> str | None:
        """Returns a sentence on why no new game should start, such as a spent budget; None if one may."""
        return None

    def keep_spend(self, folder: Path) -> None:  # noqa: B027  most players spend nothing
        """Keeps what it spends in the run's folder, and counts what is there."""

    def reseed(self, seed: int) -> None:  # noqa: B027  most players draw by their view's seed
        """Sets the seed of its sampling in this process."""


class Partner(Player):
    """Player by text: a partner, a person, a chat model or a script.

    Class attributes:
        reads: names of the arguments that are paths of files or folders.
    """

    reads: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_config(cls, config: PartnerConfig) -> Self:
        """Returns the partner of a config's `partner` section; its constructor gets `partner.args`."""
        return cls(**config.args)

    @abstractmethod
    async def act(self, view: View) -> Turn:
        """Returns the next action of `view.seat`. Raises PartnerFailure without one."""


@dataclass(slots=True)
class Sampled:
    """Sampled turn.

    Attributes:
        ids: sampled token ids, the end-of-turn token included if it was sampled.
        logprobs: log-probability of each id under the sampling distribution; as long as `ids`.
        finish: "stop" (an end token was sampled), "length" (max_tokens were sampled) or "abort" (the engine was stopped).
        meta: further output of the engine, for backends that keep it (slime's meta_info).
        forced: whether an intervention wrote it in place of the policy (`lab.interventions`).
    """

    ids: list[int]
    logprobs: list[float]
    finish: Literal["stop", "length", "abort"]
    meta: dict[str, Any] = field(default_factory=dict)
    forced: bool = False


class Policy(Player):
    """Engine that samples the policy's next turn: token ids in, sampled token ids and their logprobs out, and no text."""

    reads_tokens = True

    @abstractmethod
    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """Samples at most `max_tokens` tokens after `input_ids`. Raises PolicyFailure if the engine gives no tokens.

        Args:
            key: id of the dialogue, by which a router can stay on the worker that holds its prefix.
        """


class TokenPlayer:
    """Policy's player: it writes prompt, turns and observations as tokens to the dialogue's record.

    Args:
        player: engine that samples, or a player by text, whose turns are written as tokens with logprob 0.
    """

    def __init__(self, player: Any, chat: Chat, limits: Limits, dialogue: Dialogue) -> None:
        self.player, self.chat, self.limits, self.dialogue = player, chat, limits, dialogue
        self._last: list[int] = []  # tokens of its last turn

    async def act(self, view: View) -> Turn:
        """Returns the next turn. Raises DialogueOver without one."""
        allowed, limit = self._observe(view)
        if self.player.reads_tokens:
            ids = self.dialogue.prompt_ids + self.dialogue.response_ids
            sampled = await self.player.sample(ids, allowed, str(self.dialogue.id))
            if sampled.finish == "abort":  # not recorded: the record holds complete turns alone
                raise DialogueOver(StopReason.ABORTED, "the engine was stopped")
            text, thought = self.chat.decode(sampled.ids)
            turn = Turn(text, thought=thought, forced=sampled.forced)
        else:
            turn = await self.player.act(view)
            said = self.chat.said_ids(turn.text, turn.thought)
            ids = said[:allowed]
            sampled = Sampled(ids, [0.0] * len(ids), "stop" if ids == said else "length")
        if len(sampled.ids) != len(sampled.logprobs):
            counts = f"{len(sampled.ids)} tokens but {len(sampled.logprobs)} logprobs"
            raise DialogueOver(StopReason.ENGINE_FAILED, f"the engine gave {counts}")
        start = len(self.dialogue.response_ids)
        self._append(sampled.ids, 1, sampled.logprobs)
        turn.span, self._last = (start, start + len(sampled.ids)), sampled.ids
        ended = bool(sampled.ids) and sampled.ids[-1] in self.chat.stop_ids  # SGLang says "length" if it fits exactly
        turn.cut = limit if sampled.finish == "length" and not ended else None
        return turn

    def _observe(self, view: View) -> tuple[int, StopReason]:
        """Writes the prompt, or later the observation since the last turn; returns the next turn's maximum length and its limit.

        Raises DialogueOver, and writes no observation, if no token fits after it: a response ends with tokens of the policy.
        """
        record, limits = self.dialogue, self.limits
        observed: list[int] = []
        if not record.prompt_ids:
            record.prompt_ids = self.chat.prompt_ids(view.prompt)
        else:
            observed = self.chat.turn_ids(self._last, view.observation)
        response = len(record.response_ids) + len(observed)
        bounds = [(limits.turn_tokens, StopReason.TURN_TOKENS)]
        if limits.dialogue_tokens is not None:
            bounds.append((limits.dialogue_tokens - response, StopReason.DIALOGUE_TOKENS))
        for most in (limits.context_tokens, self.player.max_context):
            if most is not None:
                bounds.append((most - len(record.prompt_ids) - response, StopReason.CONTEXT_LENGTH))
        allowed, limit = min(bounds, key=lambda bound: bound[0])
        if allowed <= 0:
            raise DialogueOver(limit)
        self._append(observed, 0, [0.0] * len(observed))
        return allowed, limit

    def _append(self, ids: list[int], mask: int, logprobs: list[float]) -> None:
        self.dialogue.response_ids += ids
        self.dialogue.loss_mask += [mask] * len(ids)
        self.dialogue.logprobs += logprobs


def against(config: Config, kind: str) -> Config:
    """Returns the config with another kind of partner. A warning names those of `partner.args` that it does not take.

    Raises ConfigError if the game has no such partner.
    """
    other = parse_config(config.changed(partner={"kind": kind}).model_dump(), source=f"partner.kind={kind}")
    taken = (
        dict(config.partner.args)
        if other.opposite.cls is None
        else arguments_for(other.opposite.cls, config.partner.args)
    )
    if left_out := sorted(config.partner.args.keys() - taken.keys()):
        log.warning("%s plays without partner.args of %s: %s.", kind, config.opposite.name, ", ".join(left_out))
    return other.changed(partner={"args": taken})


def make_partners(config: Config) -> dict[str, Partner | None]:
    """Returns the partners of `Config.members` by name, for a whole process. Raises what `make_partner` raises."""
    made = dict[str, Partner | None]()
    for name, member in config.members.items():
        try:
            made[name] = make_partner(member)
        except ConfigError as error:
            raise ConfigError(f"partner.mixture.{name}: {error}") if config.partner.mixture else error from error
    return made


def make_partner(config: Config) -> Partner | None:
    """Returns the one partner that the config names; None in self-play and in games for one.

    Raises:
        ConfigError: it is no `Partner`, or refuses its arguments.
        DataError: the log that it repeats cannot be used.
    """
    made, section = config.opposite.cls, config.partner
    if made is None:
        return None
    if not (isinstance(made, type) and issubclass(made, Partner)):
        raise ConfigError(f"partner.kind={section.kind} is not a subclass of slim_rl.Partner; make it one.")
    try:
        usual = min(max(config.dialogues_played, LEAST_CONCURRENCY), MOST_CONCURRENCY)
        return made.from_config(section.changed(openai={"concurrency": section.openai.concurrency or usual}))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"partner.args={section.args} does not suit partner.kind={section.kind}: {misfit(error)}. Set what it takes, such as "
            f'--set "partner.args={arguments_for(made, section.args)}".'
        ) from error
