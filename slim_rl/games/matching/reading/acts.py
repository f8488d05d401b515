"""Acts of a clause by its wording: it asks, seeks consent, proposes, or states.

A clause asks only if a question mark closes it or it begins as a question or a request. Its patterns (`wording`) read masked text (`masking`).
"""

from typing import Literal

from slim_rl.games.matching.reading.masking import NAME
from slim_rl.games.matching.reading.wording import PATTERNS, begins, has

# The kinds of question, and how a page names each.
KINDS = {"pair": "about a pair", "open": "open", "check": "asking for agreement", "process": "about the game"}
INFORMATION_SEEKING = frozenset({"pair", "open"})

# ask: seeks information. name: only names a pair ("Ava on BLEU?"), which the guide calls a suggestion and a partner answers.
# check: seeks consent or an opinion. propose: a plan without a question. process: another question. none: a statement.
Act = Literal["ask", "name", "check", "propose", "process", "none"]


def opened(clause: str) -> str:
    """Returns a clause from its point on, without greetings and connectives."""
    return PATTERNS["filler"].sub("", clause, count=1)


def act_of(text: str, clause: str, marked: bool) -> Act:
    """Returns what a clause does.

    Args:
        text: its words; `clause`: those after greetings and connectives.
        marked: whether a question mark closes it.
    """
    if has("no_question", text) or begins("said", clause) or begins("condition", clause):
        return "none"
    if not marked and begins("remark", clause):
        return "none"
    request = has("imperative", clause) or has("request", clause)
    headed = request or begins("question", clause)
    if begins("process", clause) and (marked or headed):
        return "process"
    if not (marked or headed):
        return "propose" if begins("suggest", clause) else "none"
    if begins("opinion", clause) or has("consent", text) or (begins("suggest", clause) and not request):
        return "check"
    if has("plan", text) and not (has("value_words", text) and request) and not begins("choice", clause):
        return "check"
    if not headed and begins("own", clause):
        return "check" if marked and NAME.search(clause) else "none"
    return "ask"


def kind_of(clause: str) -> str:
    """Returns the kind of a question that names no pair."""
    return "open" if has("open", clause) or has("whole", clause) else "process"
