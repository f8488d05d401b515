"""Who is trained: the policy's protocol. Token ids in, sampled token ids and their logprobs out; text never crosses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from slim_rl.dialogue.record import DialogueOver, StopReason


@dataclass(slots=True)
class Sampled:
    """One sampled turn.

    Attributes:
        ids: sampled token ids, the end-of-turn token included when it was sampled.
        logprobs: log-probability of each id under the sampling distribution; as long as `ids`.
        finish: "stop" (an end token was sampled), "length" (cut at max_tokens) or "abort" (the engine was told to stop).
        meta: what else the engine returned, for backends that keep it (slime's meta_info).
        forced: whether it was not sampled, but put for the policy (`interventions`).
    """

    ids: list[int]
    logprobs: list[float]
    finish: Literal["stop", "length", "abort"]
    meta: dict[str, Any] = field(default_factory=dict)
    forced: bool = False


class PolicyFailure(DialogueOver):
    """The engine gave no tokens, after all retries. The message says why."""

    def __init__(self, message: str, reason: StopReason = StopReason.ENGINE_FAILED) -> None:
        super().__init__(reason, message)


class Policy(Protocol):
    """An engine that samples the policy's next turn."""

    @property
    def identity(self) -> dict[str, Any]:
        """Model and sampling settings, JSON-able: goes into every dialogue record."""

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """Samples at most `max_tokens` tokens after `input_ids`.

        `key` names the dialogue, so that an engine behind a router can stay on the worker that holds its prefix.
        `input_ids` belongs to the caller and grows in place between turns: read it, do not keep or change it.
        Raises PolicyFailure when the engine gives no tokens.
        """
