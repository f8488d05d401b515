"""Interventions on a policy's questions, for policies with tokens (`sample`) and policies by text (`act`).

    AskFirst    forces questions: evaluation's `--mode forced:K`
    NeverAsk    forbids questions: evaluation's `--mode forbidden`

A turn that the policy did not sample is marked (`Turn.forced`). Its logprobs are 0.0.
One object serves one dialogue.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.players import PartnerFailure, Player, Sampled
from slim_rl.dialogue.record import Turn, Usage
from slim_rl.environment import View
from slim_rl.seeds import seed_of

TRIES, INSTEAD = 16, "Let me think."


class Intervention(Player):
    """Policy whose turns an intervention may replace.

    Args:
        policy: a `dialogue.players.Policy`, or a `dialogue.players.Partner` in its seat.
        chat: token boundaries of a policy with tokens; None for a policy by text.
        name: name of the intervention in the dialogues' records.
    """

    def __init__(self, policy: Any, chat: Chat | None, name: str) -> None:
        self.policy, self.chat, self.name = policy, chat, name
        self.reads_tokens, self.max_context = policy.reads_tokens, policy.max_context

    @property
    def identity(self) -> dict[str, Any]:
        """Returns the policy's identity, with the intervention's name."""
        return {**self.policy.identity, "intervention": self.name}

    def _forced(self, text: str, max_tokens: int) -> Sampled:
        """Returns a forced turn, cut at the same length as a sampled one."""
        assert self.chat is not None
        whole = self.chat.said_ids(text)
        ids = whole[:max_tokens]
        return Sampled(ids, [0.0] * len(ids), "stop" if ids == whole else "length", forced=True)


class AskFirst(Intervention):
    """Policy whose first K turns are forced questions, and which then continues with them in its own history.

    Args:
        questions: the forced turns, in order.
    """

    def __init__(self, policy: Any, chat: Chat | None, questions: Sequence[str]) -> None:
        super().__init__(policy, chat, f"forced:{len(questions)}")
        self._left = list(questions)

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.players.Policy`."""
        if not self._left:
            sampled: Sampled = await self.policy.sample(input_ids, max_tokens, key)
            return sampled
        return self._forced(self._left.pop(0), max_tokens)

    async def act(self, view: View) -> Turn:
        """See `dialogue.players.Partner`."""
        if self._left:
            return Turn(self._left.pop(0), forced=True)
        turn: Turn = await self.policy.act(view)
        return turn


class NeverAsk(Intervention):
    """Policy whose turns are drawn again until they seek no information: its own distribution, given that it does not ask.

    Args:
        asks: function that returns True if a message seeks information.
        instead: action of the game that it plays after `TRIES` draws.
    """

    def __init__(
        self, policy: Any, chat: Chat | None, asks: Callable[[str], bool], instead: str = f"[message] {INSTEAD}"
    ) -> None:
        super().__init__(policy, chat, "forbidden")
        self.asks, self.instead = asks, instead

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.players.Policy`."""
        assert self.chat is not None
        for redraw in range(TRIES):
            # another key: the same key would draw the same turn
            again = f"{key}/again-{redraw}" if redraw else key
            sampled: Sampled = await self.policy.sample(input_ids, max_tokens, again)
            if not self.asks(self.chat.decode(sampled.ids)[0]):
                return sampled
        return self._forced(self.instead, max_tokens)

    async def act(self, view: View) -> Turn:
        """See `dialogue.players.Partner`. Each further draw has another seed."""
        usage = None
        for redraw in range(TRIES):
            seed = seed_of(view.seed, redraw) if redraw else view.seed
            try:
                turn: Turn = await self.policy.act(replace(view, seed=seed))
            except PartnerFailure as failure:
                failure.usage = _sum(usage, failure.usage)
                raise
            usage = _sum(usage, turn.usage)
            if not self.asks(turn.text):
                return replace(turn, usage=usage)
        return Turn(self.instead, usage=usage, forced=True)


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    return one + other if one and other else one or other
