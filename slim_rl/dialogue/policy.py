"""Protocol of the trained policy: token ids in, sampled token ids and their logprobs out, and no text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from slim_rl.dialogue.record import DialogueOver, StopReason


@dataclass(slots=True)
class Sampled:
    """Sampled turn.

    Attributes:
        ids: sampled token ids, the end-of-turn token included if it was sampled.
        logprobs: log-probability of each id under the sampling distribution; as long as `ids`.
        finish: "stop" (an end token was sampled), "length" (cut at max_tokens) or "abort" (the engine was stopped).
        meta: further output of the engine, for backends that keep it (slime's meta_info).
        forced: whether an intervention wrote it in place of the policy (`interventions`).
        belief: as in `dialogue.record.Turn`.
    """

    ids: list[int]
    logprobs: list[float]
    finish: Literal["stop", "length", "abort"]
    meta: dict[str, Any] = field(default_factory=dict)
    forced: bool = False
    belief: float | None = None


class PolicyFailure(DialogueOver):
    """Exception for an engine that gave no tokens, after all retries; the message is the cause."""

    def __init__(self, message: str, reason: StopReason = StopReason.ENGINE_FAILED) -> None:
        super().__init__(reason, message)


class Policy(Protocol):
    """Engine that samples the policy's next turn.

    An engine that can also score has `async score(input_ids, turn, key) -> Sampled`. It returns `turn` with the logprobs of its ids after
    `input_ids` at temperature 1, or a turn with finish "abort", and changes nothing that is sampled.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """Returns model and sampling settings for the dialogue records, JSON-able."""

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """Samples at most `max_tokens` tokens after `input_ids`.

        Raises PolicyFailure if the engine gives no tokens.

        Args:
            input_ids: the caller's list, which grows between turns; an engine must neither keep nor change it.
            key: name of the dialogue, by which a router can stay on the worker that holds its prefix.
        """
