"""Annotator of the matching game under a short name: `from slim_rl.questions import classify`."""

from slim_rl.games.matching.questions import INFORMATION_SEEKING, KINDS, annotate, classify, pairs_asked

__all__ = ["INFORMATION_SEEKING", "KINDS", "annotate", "classify", "pairs_asked"]
