"""Counts the dialogues of a rollout as they end, those of dropped groups too, and says when too many of them failed."""

from __future__ import annotations

import logging
from collections import Counter

from slim_rl.config import Config
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.errors import SlimError

log = logging.getLogger(__name__)


class Tally:
    """Dialogues ended since the last `clear`, and the reasons of those that failed. One that was called off is neither."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.played = 0
        self.reasons: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()

    def add(self, dialogue: Dialogue) -> None:
        if dialogue.stop_reason is StopReason.ABORTED:
            return
        if not dialogue.failed:
            self.played += 1
            return
        assert dialogue.stop_reason is not None
        self.reasons[dialogue.stop_reason.value] += 1
        self.causes[f"{dialogue.stop_reason.value}: {dialogue.failure}"[:300]] += 1

    @property
    def failed(self) -> int:
        return self.reasons.total()

    @property
    def failed_share(self) -> float:
        total = self.played + self.failed
        return self.failed / total if total else 0.0

    def check(self, config: Config) -> None:
        """Raises SlimError if more than `train.stop_failures` of the dialogues failed."""
        if self.failed_share > config.train.stop_failures:
            raise SlimError(
                f"Stopped instead of training on scraps: {self._summary()}. train.stop_failures allows "
                f"{config.train.stop_failures:.0%}; mend the cause and start again from the last checkpoint."
            )

    def warn(self, config: Config) -> None:
        """Says loudly that more than `slime.warn_failures` of the dialogues failed."""
        if self.failed_share > config.slime.warn_failures:
            log.error("!!! %s. They count for nothing, but find the cause (slime.warn_failures).", self._summary())

    def _summary(self) -> str:
        most = "; ".join(f"{count} × {cause}" for cause, count in self.causes.most_common(3))
        return f"{self.failed} of {self.played + self.failed} dialogues failed ({self.failed_share:.0%}): {most}"


tally = Tally()
