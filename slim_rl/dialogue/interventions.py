"""What a policy does when its questions are put for it, or forbidden: a policy with tokens (`sample`), or one that plays by text (`act`).

    a turn that the policy did not sample is marked (`Turn.forced`); its logprobs are 0.0 unless the policy's engine can tell them

One object serves one dialogue. Evaluation has both; training puts a first question where it explores (`exploring`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.partner import PartnerFailure, Usage
from slim_rl.dialogue.policy import Sampled
from slim_rl.dialogue.record import Turn
from slim_rl.environment import View
from slim_rl.seeds import seed_of

TRIES, INSTEAD = 16, "Let me think."


class Intervention:
    """What the two have in common.

    Args:
        policy: a `dialogue.policy.Policy`, or a `dialogue.partner.Partner` in its seat.
        chat: the token boundaries of a policy with tokens.
        name: of the intervention, in the dialogues' records; "": it stands in none.
    """

    def __init__(self, policy: Any, chat: Chat | None, name: str) -> None:
        self.policy, self.chat, self.name = policy, chat, name

    @property
    def identity(self) -> dict[str, Any]:
        return {**self.policy.identity, **({"intervention": self.name} if self.name else {})}

    def _said(self, text: str, max_tokens: int) -> Sampled:
        """A turn that is not the policy's own, cut where its own would be."""
        assert self.chat is not None
        whole = self.chat.said_ids(text)
        ids = whole[:max_tokens]
        return Sampled(ids, [0.0] * len(ids), "stop" if ids == whole else "length", forced=True)


class AskFirst(Intervention):
    """Its first turns are the given questions; then the policy continues by itself, and finds them among its own words. `name`: by default
    forced:K, for so many questions.
    """

    def __init__(self, policy: Any, chat: Chat | None, questions: Sequence[str], name: str | None = None) -> None:
        super().__init__(policy, chat, f"forced:{len(questions)}" if name is None else name)
        self._left = list(questions)

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.policy.Policy`."""
        if not self._left:
            sampled: Sampled = await self.policy.sample(input_ids, max_tokens, key)
            return sampled
        said = self._said(self._left.pop(0), max_tokens)
        if score := getattr(self.policy, "score_forced", None):  # slime's, which keeps the dialogue's tokens itself
            said = await score(input_ids, said, key)
        return said

    async def act(self, view: View) -> Turn:
        """See `dialogue.partner.Partner`."""
        if self._left:
            return Turn(self._left.pop(0))
        turn: Turn = await self.policy.act(view)
        return turn


class NeverAsk(Intervention):
    """Draws each turn again until it seeks no information: the policy's own distribution, given that it does not ask.

    Args:
        asks: whether a message seeks information.
        instead: what it says after `TRIES` draws, an action of the game.
    """

    def __init__(
        self, policy: Any, chat: Chat | None, asks: Callable[[str], bool], instead: str = f"[message] {INSTEAD}"
    ) -> None:
        super().__init__(policy, chat, "forbidden")
        self.asks, self.instead = asks, instead

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.policy.Policy`."""
        assert self.chat is not None
        for redraw in range(TRIES):
            # another key: the same key would draw the same turn
            again = f"{key}/again-{redraw}" if redraw else key
            sampled: Sampled = await self.policy.sample(input_ids, max_tokens, again)
            if not self.asks(self.chat.decode(sampled.ids)[0]):
                return sampled
        return self._said(self.instead, max_tokens)

    async def act(self, view: View) -> Turn:
        """See `dialogue.partner.Partner`. Each further draw is asked for with another seed."""
        usage = Usage()
        for redraw in range(TRIES):
            seed = seed_of(view.seed, redraw) if redraw else view.seed
            try:
                turn: Turn = await self.policy.act(replace(view, seed=seed))
            except PartnerFailure as failure:
                failure.usage = usage + (failure.usage or Usage())
                raise
            usage += turn.usage or Usage()
            if not self.asks(turn.text):
                return replace(turn, usage=usage)
        return Turn(self.instead, usage=usage)
