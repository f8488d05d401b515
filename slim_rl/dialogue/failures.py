"""Count of failed dialogues, which stops a run when there are too many.

A dialogue that the trainer aborted does not count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from slim_rl.config import Config
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.errors import RunStopped

_STOPS = (StopReason.BUDGET, StopReason.OUTAGE)


class Failures:
    """Counts of the dialogues that ended.

    Attributes:
        count: number of dialogues.
        reasons: stop reasons of the failed ones.
        stopped: failure of a dialogue that ended because the partner takes no more calls; None otherwise.
    """

    def __init__(self, dialogues: Iterable[Dialogue]) -> None:
        ended = [(each, each.stop_reason) for each in dialogues if each.stop_reason not in (None, StopReason.ABORTED)]
        failed = [(each.failure, str(reason)) for each, reason in ended if each.failed]
        self.count = len(ended)
        self.reasons = Counter(reason for _, reason in failed)
        self.stopped = next((failure for failure, reason in failed if reason in _STOPS), None)
        self._causes = Counter(f"{reason}: {failure}"[:300] for failure, reason in failed)

    @property
    def failed_share(self) -> float:
        return self.reasons.total() / self.count if self.count else 0.0

    def check(self, config: Config) -> None:
        """Checks, before a step's dialogues are trained on, that the run can continue.

        Raises:
            RunStopped: a dialogue failed because the partner takes no more calls, or more than `train.stop_failures` of the dialogues
                failed. The step is not trained on, since dialogues with many questions end last and fail most often.
        """
        if self.stopped is not None:
            raise RunStopped(f"Training stops: {self.stopped}")
        if self.failed_share > config.train.stop_failures:
            raise RunStopped(
                f"Training stops: {self.summary}. train.stop_failures allows {config.train.stop_failures:.0%}; "
                "fix the cause and start again from the last checkpoint."
            )

    @property
    def summary(self) -> str:
        """Returns the number of failed dialogues and their most common causes, as text."""
        most = "; ".join(f"{count} × {cause}" for cause, count in self._causes.most_common(3))
        return f"{self.reasons.total()} of {self.count} dialogues failed ({self.failed_share:.0%}): {most}".rstrip(".")


def nothing_measured(evaluations: Mapping[str, Sequence[Dialogue]]) -> str:
    """Returns a sentence that names the evaluations without any dialogue that did not fail; empty without such evaluations."""
    lost = {name: those for name, those in evaluations.items() if those and all(each.failed for each in those)}
    causes = Failures(each for those in lost.values() for each in those).summary
    sentence = f"Nothing was measured in {', '.join(lost)}: {causes}. Fix the cause and run the same command again."
    return sentence if lost else ""
