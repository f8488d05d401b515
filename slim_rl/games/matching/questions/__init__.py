"""The measuring instrument: what a message asks, what a question is worth, and what a dialogue shows of both."""

from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.questions.classify import INFORMATION_SEEKING, classify, pairs_asked
from slim_rl.games.matching.questions.rules import LABELS

__all__ = ["INFORMATION_SEEKING", "LABELS", "annotate", "classify", "pairs_asked"]
