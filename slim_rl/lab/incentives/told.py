"""What a run and `slim-rl doctor` say of a config's incentives before anything is spent; `register` makes them say it."""

from __future__ import annotations

from collections.abc import Iterator

from slim_rl import backends
from slim_rl.backends.checks import EXAMINATIONS, Check, verdict
from slim_rl.config import Config

NO_REASON_TO_ASK = (
    "A policy that starts without questions may never learn to ask: `slim-rl lab incentives CONFIG` shows what pays instead, and "
    "docs/how-to/check-that-asking-raises-reward.md what to change."
)


def register() -> None:
    """Adds the sentence to the start of runs, and the check to doctor's."""
    if sentence_at_the_start not in backends.AT_THE_START:
        backends.AT_THE_START.append(sentence_at_the_start)
    EXAMINATIONS["what asking pays"] = check_incentives


def sentence_at_the_start(config: Config) -> str:
    """Returns whether asking pays, which scripted players show in seconds, once for games and a partner."""
    from slim_rl.lab.incentives import at_a_start  # pandas and SciPy take a second

    if (found := at_a_start(config)) is None:
        return ""
    sentence, pays = found
    return sentence if pays else f"WARNING. {sentence} {NO_REASON_TO_ASK}"


def check_incentives(config: Config) -> Iterator[Check]:
    """Asking pays from the first question, and hardly anything can be earned without."""
    from slim_rl.lab.incentives import at_a_start

    if (found := at_a_start(config)) is not None:
        sentence, pays = found
        fix = "See what pays instead by `slim-rl lab incentives CONFIG`, and docs/how-to/check-that-asking-raises-reward.md on what to change."
        yield verdict("what asking pays", sentence, warn="" if pays else fix)
