"""Fills in what a finished dialogue's turns ask, tell and were worth. Depends on the dialogue alone, and changes nothing else;
to annotate twice is to annotate once.

A question is answered, or not, by the other seat's next valid turn. What a seat is told without asking it knows from then on,
but credits to no question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.errors import DataError
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.questions.answers import answers, denies_score, told
from slim_rl.games.matching.questions.classify import INFORMATION_SEEKING, questions
from slim_rl.games.matching.questions.rules import LABELS
from slim_rl.games.matching.questions.scope import Pair
from slim_rl.games.matching.questions.value import Knowledge, Worth
from slim_rl.games.matching.reading.form import is_malformed
from slim_rl.games.matching.roster import Roster

_SPEECH = ("message", "reject")  # the actions whose text may ask or tell


def annotate(dialogue: Dialogue) -> None:
    """Fills the annotations of every turn, of both seats.

    A turn that the game refused reached nobody, and asks nothing. For another game than the matching game there are labels
    only. Never raises.
    """
    state = _state(dialogue.game_state)
    roster = state.roster if state is not None else None
    seats = {turn.seat for turn in dialogue.turns}
    knows = {seat: Knowledge(state, seat) for seat in seats if seat in (0, 1)} if state is not None else {}
    asked_by: dict[int, set[Pair]] = {seat: set() for seat in seats}
    said: dict[int, str] = {}  # the last valid words of each seat
    waiting: dict[int, Turn] = {}  # the question of each seat that has had no reply yet
    for turn in dialogue.turns:
        _clear(turn)
        if turn.action is None or turn.error is not None:
            continue
        words = turn.text if turn.action.get("kind", "message") in _SPEECH else ""
        for seat in seats - {turn.seat}:
            _reply(waiting.pop(seat, None), turn, words, knows.get(seat), roster)
        previous = next((said[seat] for seat in seats - {turn.seat} if seat in said), "")
        asked = questions(words, previous, roster) if words else ()
        labels = {question.label for question in asked}
        turn.questions = [label for label in LABELS if label in labels]
        turn.seeking = bool(labels & INFORMATION_SEEKING)
        if words and roster is not None:
            turn.malformed = is_malformed(words, roster)
        knowledge = knows.get(turn.seat)
        if state is not None:
            turn.pairs = list(dict.fromkeys(pair for question in asked for pair in question.pairs))
        if knowledge is not None:
            first = [pair for pair in turn.pairs or () if pair not in asked_by[turn.seat]]
            turn.informative = [pair for pair in first if knowledge.informative(pair)]
            asked_by[turn.seat].update(first)
        said[turn.seat] = words
        _no_reply(waiting.pop(turn.seat, None), knowledge)  # it spoke again before it had a reply
        if turn.seeking:
            waiting[turn.seat] = turn
    for seat, turn in waiting.items():
        _no_reply(turn, knows.get(seat))
    for seat, turn in {turn.seat: turn for turn in dialogue.turns if turn.role == "policy"}.items():
        if seat in knows:
            turn.best_known = round(knows[seat].best_known(), 6)


def worth(dialogue: Dialogue) -> list[float]:
    """The best expected score by what the policy knew, as a share of the best, before each of its turns of an annotated dialogue:
    it knew its own cells and those that it was told.

    Raises:
        DataError: the game is not the matching game.
    """
    knowledge = Knowledge(GameState.from_dict(dialogue.game_state), dialogue.seat)
    out = []
    for turn in dialogue.turns:
        if turn.role == "policy":
            out.append(knowledge.expected)
        else:
            knowledge.hear(turn.told or ())
    return out


def _clear(turn: Turn) -> None:
    turn.questions, turn.pairs, turn.informative, turn.told = [], [], [], []
    turn.seeking = False
    turn.malformed = turn.answered = turn.value = turn.gain = turn.regret = turn.best_known = None


def _reply(question: Turn | None, turn: Turn, words: str, knowledge: Knowledge | None, roster: Roster | None) -> None:
    """`turn` says `words` after `question`, if there was one, to the seat that has this `knowledge`."""
    pairs = question.pairs or [] if question is not None else []
    heard = told(pairs, words, roster) if words and roster is not None else []
    turn.told = heard
    if question is None:
        if knowledge is not None:
            knowledge.hear(heard)
        return
    found = answers(pairs, words, roster) if pairs and words and roster is not None else {}
    question.answered = bool(found) if pairs else bool(heard) or (bool(words) and denies_score(words, roster))
    if knowledge is not None:
        missing = [pair for pair, answer in found.items() if answer == "none"]
        _credit(question, knowledge.ask(pairs, heard, missing))


def _no_reply(question: Turn | None, knowledge: Knowledge | None) -> None:
    if question is not None:
        question.answered = False
        if knowledge is not None:
            _credit(question, knowledge.ask(question.pairs or [], []))


def _credit(question: Turn, worth: Worth) -> None:
    question.value = round(worth.value, 6)
    question.gain = round(worth.gain, 6)
    question.regret = round(worth.regret, 6) if worth.regret is not None else None


def _state(data: Mapping[str, Any]) -> GameState | None:
    """The matching game, if it is one."""
    if not isinstance(data, Mapping) or "table" not in data:
        return None
    try:
        return GameState.from_dict(data)
    except DataError:
        return None
