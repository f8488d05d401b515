"""Player of the policy's seat by tokens.

Invariants:
    One list, `ids`, holds prompt and response and only grows at its end. Every engine call reads it.

Its turns are sampled by an engine (`policy.Policy`), or are a text player's, written as tokens with logprob 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slim_rl.config import Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.partner import Partner
from slim_rl.dialogue.policy import Policy
from slim_rl.dialogue.record import DialogueOver, StopReason, Turn
from slim_rl.environment import View


def opening(prompt: Sequence[dict[str, str]], view: View) -> list[dict[str, str]]:
    """Returns the messages before a policy's first turn; if the other seat opened the game, its text follows the state."""
    if not view.history:
        return list(prompt)
    *before, last = prompt
    return [*before, {**last, "content": f"{last['content']}\n\n{view.observation}"}]


@dataclass
class TokenPlayer:
    """Player whose turns are recorded as tokens.

    Attributes:
        player: engine that samples, or a text player.
        key: routing key of the engine's calls.
        ids: prompt and response token ids.
        loss_mask, logprobs: lists as long as the response.
    """

    player: Policy | Partner
    chat: Chat
    limits: Limits
    key: str
    ids: list[int] = field(default_factory=list)
    prompt_length: int = 0
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    _last_span: tuple[int, int] = (0, 0)

    @property
    def identity(self) -> dict[str, Any]:
        """Returns the player's identity, JSON-able."""
        return self.player.identity

    async def act(self, view: View) -> Turn:
        """Returns the next turn. Raises DialogueOver without one."""
        self._observe(view)
        if not hasattr(self.player, "sample"):
            turn = await self.player.act(view)
            ids = self.chat.said_ids(turn.text, turn.thought)
            allowed, limit = self._allowance()
            turn.cut, turn.span = (
                limit if len(ids) > allowed else None,
                self._add(ids[:allowed], [0.0] * len(ids[:allowed])),
            )
            return turn
        allowed, limit = self._allowance()
        sampled = await self.player.sample(self.ids, allowed, self.key)
        if sampled.finish == "abort":  # not recorded: the record holds complete turns alone
            raise DialogueOver(StopReason.ABORTED, "the engine was stopped")
        span = self._add(sampled.ids, sampled.logprobs)
        text, thought = self.chat.decode(sampled.ids)
        cut = limit if sampled.finish == "length" else None
        return Turn(text, thought=thought, span=span, forced=sampled.forced, cut=cut, belief=sampled.belief)

    def _observe(self, view: View) -> None:
        """Appends the observation since the last turn; before the first turn, the prompt."""
        if not self.ids:
            self.ids = self.chat.prompt_ids(opening(view.prompt, view))
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

    def _add(self, ids: list[int], logprobs: list[float]) -> tuple[int, int]:
        """Appends a turn of the policy; returns its [start, end) in the response."""
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

    def _allowance(self) -> tuple[int, StopReason]:
        """Returns the maximum tokens of the next turn, and the limit that sets it."""
        allowed, limit = self.limits.turn_tokens, StopReason.TURN_TOKENS
        for reason, most in self._budgets():
            left = most - len(self.ids)
            if left <= 0:
                raise DialogueOver(reason)
            if left < allowed:
                allowed, limit = left, reason
        return allowed, limit

    def _budgets(self) -> list[tuple[StopReason, int]]:
        """Returns the limits on prompt and response together, with their stop reasons."""
        budgets = []
        if self.limits.dialogue_tokens is not None:
            budgets.append((StopReason.DIALOGUE_TOKENS, self.prompt_length + self.limits.dialogue_tokens))
        if self.limits.context_tokens is not None:
            budgets.append((StopReason.CONTEXT_LENGTH, self.limits.context_tokens))
        return budgets
