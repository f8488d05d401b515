"""Players by text: a partner, a person, a chat model or a script. Each turns a `View` into a turn.

Invariants:
    A player keeps no state of a dialogue between calls: the view holds all of it. One player serves all dialogues of a process.
    A turn depends on the view alone, its seed included.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from slim_rl.dialogue.record import DialogueOver, StopReason, Turn
from slim_rl.environment import View


@dataclass(frozen=True, slots=True)
class Usage:
    """Cost of a player's API calls, from the API's own usage field if that is plausible.

    Attributes:
        calls: number of answered requests.
        input_tokens, cached_tokens, output_tokens: tokens; cached ones are part of the input ones.
        cost_usd: US dollars according to the price table; 0.0 without a known price.
        retries: number of repeated requests.
        malformed: number of invalid replies that were requested again.
        model: the API's name of the model that answered; None without one.
        asides: number of replies with text outside their action, which the other player does not read.
        estimated: number of answers whose tokens are estimated from the text, since the API's count is missing or wrong.
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
        """Returns the sum of both, with the later model's name."""
        sums = {name: value + getattr(other, name) for name, value in asdict(self).items() if name != "model"}
        return Usage(**sums, model=other.model or self.model)


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


class Partner(Protocol):
    """Player of the seat opposite the policy.

    Optional members:
        stopped: None, or a sentence on why no new game should start (the endpoint is down, the budget spent).
        keep_spend(folder): keeps what it spends in the run's folder and counts what is there; for partners that cost money.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """Returns kind, model and settings for the dialogue records, JSON-able and without secrets (kind: `factory.partner_name`)."""

    async def act(self, view: View) -> Turn:
        """Returns the next action of `view.seat`. Raises PartnerFailure without one."""
