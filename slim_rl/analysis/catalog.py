"""What is measured, in the order in which it is shown. Names are those of `dialogue.measures`."""

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
        share: shown as per cent.
        role: "primary" measures are the hypothesis' own and make up the family that p values are corrected in; "secondary"
            ones are shown with their intervals, uncorrected.
        bounded: its values lie in [0, 1], and so do the intervals of their mean.
        signed: its values may be negative; of others the intervals of their mean end at zero.
        short: for narrow tables, where the title is long.
    """

    name: str
    title: str
    share: bool = False
    role: Literal["primary", "secondary"] = "secondary"
    bounded: bool = False
    signed: bool = False
    short: str = ""


MEASURES = (
    Measure("questions", "information-seeking questions a game", role="primary", short="questions a game"),
    Measure("informative_pairs", "informative pairs asked and told a game", role="primary", short="informative pairs"),
    Measure("value", "information value of the questions of a game", role="primary", signed=True),
    Measure("reward", "reward", role="primary", bounded=True),
    Measure("agreed", "games agreed", share=True, bounded=True),
    Measure("answered", "information-seeking questions answered", share=True, bounded=True),
    Measure("regret", "regret a question, against the best one"),
    Measure("questions_per_message", "information-seeking questions a message"),
    Measure("questions_per_100_words", "information-seeking questions per 100 words"),
    Measure("informative_pairs_per_message", "informative pairs a message"),
    Measure("value_per_100_words", "information value per 100 words", signed=True),
    Measure("questions_any", "questions of any kind a game"),
    Measure("pairs_asked", "pairs asked a game", short="pairs asked"),
    Measure("learnable_pairs", "pairs first asked a game that could be learned", short="learnable pairs"),
    Measure("told_uncounted", "pairs told a game, of which no question is counted", short="told, not asked"),
    Measure("doubts_told", "pairs named in rejections a game", short="doubts told"),
    Measure("repeats", "pairs asked again a game"),
    Measure("malformed", "malformed messages a game"),
    Measure("malformed_share", "malformed messages", share=True, bounded=True),
    Measure("best_known", "reward of the best plan by what it knew", bounded=True, short="best known plan"),
    Measure("gain", "true gain of the best plan by the questions of a game", signed=True),
    Measure("valid_proposals", "valid proposals among those tried", share=True, bounded=True, short="valid proposals"),
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
    "check": "questions consent",
    "process": "about the game",
}
