"""The measuring instrument: what a message asks, what a question is worth, and what a dialogue shows of both."""

from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.reading.acts import INFORMATION_SEEKING, KINDS
from slim_rl.games.matching.reading.reader import classify, pairs_asked

__all__ = ["INFORMATION_SEEKING", "KINDS", "annotate", "classify", "pairs_asked"]
