"""What is measured, in the order in which it is shown. Names are those of `questions.measures`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the frame.

    Attributes:
        name: the column.
        title: for tables and axes.
        share: its values are shares in [0, 1], shown as per cent.
        role: "primary" measures are the hypothesis' own and make up the family that p values are corrected in;
        "secondary" ones
            are shown with their intervals, uncorrected.
    """

    name: str
    title: str
    share: bool = False
    role: Literal["primary", "secondary"] = "secondary"


MEASURES = (
    Measure("seeking", "information-seeking questions a game", role="primary"),
    Measure("informative_pairs", "informative pairs asked a game", role="primary"),
    Measure("value", "information value of the questions of a game", role="primary"),
    Measure("reward", "reward", role="primary"),
    Measure("agreed", "games agreed", share=True),
    Measure("answered", "information-seeking questions answered", share=True),
    Measure("regret", "regret a question, against the best one"),
    Measure("seeking_per_message", "information-seeking questions a message"),
    Measure("seeking_per_100_words", "information-seeking questions per 100 words"),
    Measure("informative_pairs_per_message", "informative pairs a message"),
    Measure("value_per_100_words", "information value per 100 words"),
    Measure("questions", "questions of any kind a game"),
    Measure("pairs_asked", "pairs asked a game"),
    Measure("repeats", "pairs asked again a game"),
    Measure("gain", "true gain of the best plan by the questions of a game"),
    Measure("valid_proposals", "valid proposals among those tried", share=True),
    Measure("messages", "policy messages a game"),
    Measure("words", "policy words a game"),
    Measure("turns", "turns a game, both seats"),
    Measure("errors", "refused policy turns a game"),
)
BY_NAME = {measure.name: measure for measure in MEASURES}

TREATMENT = "shy"  # the arm the others are compared with, where there is one


def order_arms(arms: Iterable[str]) -> list[str]:
    """The treatment first, then by name."""
    return sorted(map(str, arms), key=lambda arm: (arm != TREATMENT, arm))


KINDS = {
    "pair": "about a pair",
    "open": "open",
    "check": "seeking consent",
    "process": "about the game",
}
