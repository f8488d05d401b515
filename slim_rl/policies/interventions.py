"""What a policy does when its questions are put for it, or forbidden.

`AskFirst` and `NeverAsk` wrap a policy with tokens, `SpeakFirst` and `NeverSpeakQuestion` a chat model that plays by text. All are
for evaluation only: a turn that was not sampled from the policy has no logprob (0.0 stands there) and must not be trained on. One
object serves one dialogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.partner import Reply, Usage
from slim_rl.dialogue.policy import Policy, Sampled
from slim_rl.environment import View
from slim_rl.policies.openai_chat import ChatPlayer
from slim_rl.seeds import seed_of

TRIES, INSTEAD = 16, "[message] Let me think."


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

    After `TRIES` draws it says `INSTEAD`. `asks`: whether a message seeks information.
    """

    def __init__(self, policy: Policy, chat: Chat, asks: Callable[[str], bool]) -> None:
        self.policy, self.chat, self.asks = policy, chat, asks

    @property
    def identity(self) -> dict[str, Any]:
        return {**self.policy.identity, "intervention": "forbidden"}

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.policy.Policy`."""
        for redraw in range(TRIES):
            # another key: the same key would draw the same turn
            sampled = await self.policy.sample(input_ids, max_tokens, f"{key}/again-{redraw}" if redraw else key)
            text, _thought = self.chat.decode(sampled.ids)
            if not self.asks(text):
                return sampled
        ids = self.chat.said_ids(INSTEAD)
        return Sampled(ids, [0.0] * len(ids), "stop")


class SpeakFirst:
    """`AskFirst` for a chat model, which finds the questions among its own words."""

    def __init__(self, player: ChatPlayer, questions: Sequence[str]) -> None:
        self.player, self._left = player, list(questions)
        self._number = len(self._left)

    @property
    def identity(self) -> dict[str, Any]:
        return {**self.player.identity, "intervention": f"forced:{self._number}"}

    async def reply(self, view: View) -> Reply:
        """See `dialogue.partner.Partner`."""
        if not self._left:
            return await self.player.reply(view)
        self.player.observe(view)
        return Reply(self._left.pop(0))


class NeverSpeakQuestion:
    """`NeverAsk` for a chat model: each further draw is asked with another seed."""

    def __init__(self, player: ChatPlayer, asks: Callable[[str], bool]) -> None:
        self.player, self.asks = player, asks

    @property
    def identity(self) -> dict[str, Any]:
        return {**self.player.identity, "intervention": "forbidden"}

    async def reply(self, view: View) -> Reply:
        """See `dialogue.partner.Partner`."""
        usage = Usage()
        for redraw in range(TRIES):
            seed = seed_of(view.seed, redraw) if redraw else view.seed
            reply = await self.player.reply(replace(view, seed=seed))
            usage += reply.usage or Usage()
            if not self.asks(reply.text):
                return replace(reply, usage=usage)
        return Reply(INSTEAD, usage)
