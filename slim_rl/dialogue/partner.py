"""A player by text: the partner, a person, a chat model, a script. It is given one seat's `View` and returns that seat's next turn.

A player keeps nothing between calls that belongs to a dialogue: the view holds it all. So one player serves every dialogue of
a process at once, and a turn depends on the view (its seed included) alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from slim_rl.dialogue.record import DialogueOver, StopReason, Turn
from slim_rl.environment import View


@dataclass(frozen=True, slots=True)
class Usage:
    """What a partner's API calls took, from the API's own usage field where it can be believed.

    Attributes:
        calls: requests that were answered.
        input_tokens, cached_tokens, output_tokens: tokens; cached ones are part of the input ones.
        cost_usd: in US dollars, by the price table; 0.0 where no price is known.
        retries: requests that had to be made again.
        malformed: replies that were not a valid action and were asked again.
        model: the snapshot that answered, as the API names it.
        asides: replies with words outside their action, which the other player does not hear.
        estimated: answers whose tokens the API did not tell, or told wrongly, and that were estimated from the text.
    """

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    retries: int = 0
    malformed: int = 0
    model: str | None = None
    estimated: int = 0
    asides: int = 0

    def __add__(self, other: Usage) -> Usage:
        """The sum of both; the later model's name stands."""
        sums = {name: value + getattr(other, name) for name, value in asdict(self).items() if name != "model"}
        return Usage(**sums, model=other.model or self.model)


class PartnerFailure(DialogueOver):
    """The partner has no reply, after all retries. The message says why. `usage`: what it took all the same; `thought`: what it thought."""

    def __init__(
        self,
        message: str,
        reason: StopReason = StopReason.PARTNER_FAILED,
        usage: Usage | None = None,
        thought: str | None = None,
    ) -> None:
        super().__init__(reason, message)
        self.usage, self.thought = usage, thought


class Partner(Protocol):
    """Whoever sits opposite the policy.

    A partner that can come to its end for good (its endpoint is down, its budget spent) also has an attribute `stopped`: None, or
    one sentence on why no new game should be started. One that costs money also has a method `keep_spend(folder)`: it keeps what it
    spends in the run's folder, and counts what it finds there.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, model and settings, JSON-able, without secrets: goes into every dialogue record (its kind: `factory.partner_name`)."""

    async def act(self, view: View) -> Turn:
        """The next action of `view.seat`. Raises PartnerFailure when there is none."""
