"""The measuring instrument: what a message asks, what a question is worth, and what a dialogue shows of both."""

from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.questions.classify import classify, pairs_asked
from slim_rl.games.matching.questions.rules import INFORMATION_SEEKING, KINDS

__all__ = ["INFORMATION_SEEKING", "KINDS", "annotate", "classify", "pairs_asked"]
