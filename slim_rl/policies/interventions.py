"""What a trained policy does when its questions are put for it, or forbidden.

Both wrap another policy and are for evaluation only: a turn that was not sampled from the policy has no logprob of its own (0.0)
and must not be trained on. One object serves one dialogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.policy import Policy, Sampled


class AskFirst:
    """Its first turns are the given questions; then the policy continues by itself."""

    def __init__(self, policy: Policy, chat: Chat, questions: Sequence[str]) -> None:
        self.policy, self.chat, self._left = policy, chat, list(questions)
        self._number = len(self._left)

    @property
    def identity(self) -> dict[str, Any]:
        return {**self.policy.identity, "intervention": f"forced:{self._number}"}

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.policy.Policy`."""
        if not self._left:
            return await self.policy.sample(input_ids, max_tokens, key)
        ids = self.chat.said_ids(self._left.pop(0))
        return Sampled(ids, [0.0] * len(ids), "stop")


class NeverAsk:
    """Draws each turn again until it seeks no information: the policy's own distribution, given that it does not ask.

    After `tries` draws it says `instead`, which is counted in `gave_up`. `asks`: whether a message seeks information.
    """

    def __init__(
        self,
        policy: Policy,
        chat: Chat,
        asks: Callable[[str], bool],
        tries: int = 16,
        instead: str = "[message] Let me think.",
    ) -> None:
        self.policy, self.chat, self.asks, self.tries, self.instead = policy, chat, asks, tries, instead
        self.gave_up = 0

    @property
    def identity(self) -> dict[str, Any]:
        return {**self.policy.identity, "intervention": "forbidden"}

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.policy.Policy`."""
        for redraw in range(self.tries):
            # another key: the same key would draw the same turn
            sampled = await self.policy.sample(input_ids, max_tokens, f"{key}/again-{redraw}" if redraw else key)
            text, _thought = self.chat.decode(sampled.ids)
            if not self.asks(text):
                return sampled
        self.gave_up += 1
        ids = self.chat.said_ids(self.instead)
        return Sampled(ids, [0.0] * len(ids), "stop")
