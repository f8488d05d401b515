"""Who plays in a game, one agent a seat, and what is kept of what each says.

    TextAgent         the partner, by text: its words are kept, no tokens
    TextPolicyAgent   the policy by text: a person, a chat model or a scripted player
    PolicyAgent       the policy by tokens: its turns are sampled
    DemonstratorAgent a scripted player in the policy's place: its words are written as if they had been sampled (logprob 0)

An agent with tokens holds one list, `ids`, prompt and response together, which only ever grows at its end: the list that every
engine call is given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from slim_rl.config import Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.partner import Partner, PartnerFailure
from slim_rl.dialogue.policy import Policy
from slim_rl.dialogue.record import DialogueOver, StopReason
from slim_rl.environment import View


@dataclass
class AgentReply:
    """What an agent says at its turn, before the game has seen it."""

    text: str
    thought: str | None = None
    span: tuple[int, int] | None = None
    usage: dict[str, Any] | None = None
    cut: StopReason | None = None  # the limit that cut it short
    put: bool = False  # put for the policy, not sampled


def opening(prompt: list[dict[str, str]], view: View) -> list[dict[str, str]]:
    """The messages an agent reads before its first turn. If the other one opened, its words follow the state."""
    if not view.history:
        return prompt
    *before, last = prompt
    return [*before, {**last, "content": f"{last['content']}\n\n{view.observation}"}]


class Agent(ABC):
    """Plays one seat of a game for its `player`. `is_policy`: whether it is the policy, whose errors and words are its own;
    `reads_private_view`: whether it looks at more than text.
    """

    is_policy: ClassVar[bool] = True
    reads_private_view: ClassVar[bool] = True
    player: Any  # a partner or a policy
    prompt: list[dict[str, str]]  # the opening messages, once it has spoken

    @property
    def identity(self) -> dict[str, Any]:
        """Who plays, JSON-able."""
        return self.player.identity  # type: ignore[no-any-return]

    @abstractmethod
    async def act(self, view: View) -> AgentReply:
        """Its next action. Raises DialogueOver."""


@dataclass
class TextAgent(Agent):
    """The partner: a player by text."""

    player: Partner
    prompt: list[dict[str, str]] = field(default_factory=list)
    is_policy: ClassVar[bool] = False

    async def act(self, view: View) -> AgentReply:
        reply = await self.player.reply(view)
        usage = asdict(reply.usage) if reply.usage else None
        return AgentReply(reply.text, reply.thought, usage=usage, cut=reply.cut)


@dataclass
class TextPolicyAgent(TextAgent):
    """The policy, playing by text."""

    is_policy: ClassVar[bool] = True

    async def act(self, view: View) -> AgentReply:
        if not any(utterance.seat == view.seat for utterance in view.history):
            self.prompt = opening(self.prompt, view)
        try:
            return await super().act(view)
        except PartnerFailure as failure:
            ours = failure.reason in (StopReason.PARTNER_FAILED, StopReason.OUTAGE)
            reason = StopReason.ENGINE_FAILED if ours else failure.reason
            raise PartnerFailure(str(failure), reason, failure.usage) from failure


@dataclass
class TokenAgent(Agent):
    """An agent whose tokens are kept.

    Attributes:
        prompt: its opening messages.
        ids: prompt and response token ids.
        loss_mask, logprobs: of the response; as long as it.
    """

    chat: Chat
    limits: Limits
    prompt: list[dict[str, str]]
    ids: list[int] = field(default_factory=list)
    prompt_length: int = 0
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    _last_span: tuple[int, int] = (0, 0)

    def observe(self, view: View) -> None:
        """Writes what happened since the agent last spoke. The first time, that is the prompt."""
        if not self.ids:
            self.prompt = opening(self.prompt, view)
            self.ids = self.chat.prompt_ids(self.prompt)
            self.prompt_length = len(self.ids)
            return
        start, end = (self.prompt_length + index for index in self._last_span)
        delta = self.chat.turn_ids(self.ids[start:end], view.observation)
        for limit, most in self._budgets():
            if len(self.ids) + len(delta) >= most:
                raise DialogueOver(limit)
        self.ids += delta
        self.loss_mask += [0] * len(delta)
        self.logprobs += [0.0] * len(delta)

    def add_sampled(self, ids: list[int], logprobs: list[float]) -> tuple[int, int]:
        """Appends its own turn; returns its [start, end) in the response."""
        if len(ids) != len(logprobs):
            raise DialogueOver(
                StopReason.ENGINE_FAILED, f"the engine gave {len(ids)} tokens but {len(logprobs)} logprobs"
            )
        start = len(self.loss_mask)
        self.ids += ids
        self.loss_mask += [1] * len(ids)
        self.logprobs += logprobs
        self._last_span = (start, len(self.loss_mask))
        return self._last_span

    def allowance(self) -> tuple[int, StopReason]:
        """Tokens the next turn may have, and the limit that sets it."""
        allowed, limit = self.limits.turn_tokens, StopReason.TURN_TOKENS
        for reason, most in self._budgets():
            left = most - len(self.ids)
            if left <= 0:
                raise DialogueOver(reason)
            if left < allowed:
                allowed, limit = left, reason
        return allowed, limit

    def _budgets(self) -> list[tuple[StopReason, int]]:
        """The limits on prompt and response together."""
        budgets = []
        if self.limits.dialogue_tokens is not None:
            budgets.append((StopReason.DIALOGUE_TOKENS, self.prompt_length + self.limits.dialogue_tokens))
        if self.limits.context_tokens is not None:
            budgets.append((StopReason.CONTEXT_LENGTH, self.limits.context_tokens))
        return budgets


@dataclass
class PolicyAgent(TokenAgent):
    """Its words are sampled. `key` is the policy's routing key."""

    reads_private_view: ClassVar[bool] = False
    player: Policy = field(kw_only=True)
    key: str = field(kw_only=True)

    async def act(self, view: View) -> AgentReply:
        self.observe(view)
        allowed, limit = self.allowance()
        sampled = await self.player.sample(self.ids, allowed, self.key)
        if sampled.finish == "abort":
            # An aborted turn leaves no trace: what is recorded are whole turns, and a resumed game samples this one again.
            raise DialogueOver(StopReason.ABORTED, "the engine was told to stop")
        span = self.add_sampled(sampled.ids, sampled.logprobs)
        text, thought = self.chat.decode(sampled.ids)
        return AgentReply(text, thought, span, cut=limit if sampled.finish == "length" else None, put=sampled.put)


@dataclass
class DemonstratorAgent(TokenAgent):
    """Its words are a scripted player's, written as tokens."""

    player: Partner = field(kw_only=True)

    async def act(self, view: View) -> AgentReply:
        self.observe(view)
        reply = await self.player.reply(view)
        ids = self.chat.said_ids(reply.text, reply.thought)
        allowed, limit = self.allowance()
        cut = limit if len(ids) > allowed else None
        ids = ids[:allowed]
        return AgentReply(reply.text, reply.thought, span=self.add_sampled(ids, [0.0] * len(ids)), cut=cut)
