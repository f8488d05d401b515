"""Annotator of a finished dialogue: what its turns ask, state and are worth.

Annotations depend on the dialogue alone; annotating twice changes nothing.

A message asks about a pair if

    the reader reads it so (`reading.reader`), whose reading partners answer too,
    or the reply states scores of pairs that the message names, and of no others.

So a score that is stated in answer to a message was asked for, also from a partner that reads better. A reply that states other pairs too
volunteers: a partner that answers anything makes no question of "Hello" or of a plan. A reply that only repeats a score from the message
makes none either.

A question is answered, or not, by the other seat's next valid turn. What a seat learns without asking it knows from then on,
but credits to no question.

Whenever the same dialogue would get other annotations, `MatchingInstrument.annotator_version` is raised.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.games.matching.questions.answers import answers, denies_score, informs, refused, stated_pairs
from slim_rl.games.matching.questions.value import Knowledge, Worth
from slim_rl.games.matching.reading.acts import KINDS
from slim_rl.games.matching.reading.masking import body
from slim_rl.games.matching.reading.pairing import by_side, last_named
from slim_rl.games.matching.reading.reader import Reading, read
from slim_rl.games.matching.roster import Pair, Roster
from slim_rl.games.matching.state import GameState, state_of

_SPEECH = ("message", "reject")  # the actions whose text may ask or tell


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """Words that have had no reply yet, the other seat's before them, and what they ask by themselves."""

    turn: Turn
    words: str
    previous: str
    reading: Reading


def annotate(dialogue: Dialogue) -> None:
    """Fills the annotations of every turn, of both seats.

    A turn that the game refused reached no one, and asks nothing. For another game than the matching game there are labels
    only. Never raises.
    """
    state = state_of(dialogue.game_state)
    roster = state.roster if state is not None else None
    seats = {turn.seat for turn in dialogue.turns}
    knows = {seat: Knowledge(state, seat) for seat in seats if seat in (0, 1)} if state is not None else {}
    spoken: list[tuple[int, str]] = []  # the valid words so far, and whose
    asked_before: dict[int, set[Pair]] = {seat: set() for seat in seats}
    waiting: dict[int, _Unanswered] = {}  # what each seat said that has had no reply yet
    for turn in dialogue.turns:
        _clear(turn)
        turn.proposes = turn.text.lstrip()[:9].lower() == "[propose]" or (turn.action or {}).get("kind") == "propose"
        if turn.role == "policy" and turn.seat in knows:
            turn.state_value = round(knows[turn.seat].expected, 6)
            turn.unknown = knows[turn.seat].unknown
        if turn.action is None or turn.error is not None:
            continue
        kind = turn.action.get("kind", "message")
        words = turn.text if kind in _SPEECH else ""
        for seat in seats - {turn.seat}:
            _reply(waiting.pop(seat, None), turn, words, knows.get(seat), state)
        previous = next((message for seat, message in reversed(spoken) if seat != turn.seat), "")
        before = [message for _, message in spoken]
        spoken.append((turn.seat, turn.text))
        _no_reply(waiting.pop(turn.seat, None), knows.get(turn.seat))  # it spoke again before it had a reply
        if not words:
            continue
        reading = read(words, roster or Roster.default(), before)
        if roster is not None:
            turn.malformed, turn.unread = reading.malformed, reading.unread
            reading = Reading() if turn.malformed else reading
        turn.questions, turn.pairs, turn.seeking = list(reading.kinds), list(reading.asked), reading.seeking
        if turn.seat in knows:
            first = [pair for pair in reading.asked if pair not in asked_before[turn.seat]]
            turn.learnable = [pair for pair in first if knows[turn.seat].informative(pair)]
            asked_before[turn.seat].update(first)
        waiting[turn.seat] = _Unanswered(turn, words, previous, reading)
    for seat, message in waiting.items():
        _no_reply(message, knows.get(seat))
    for seat, turn in {turn.seat: turn for turn in dialogue.turns if turn.role == "policy"}.items():
        if seat in knows:
            turn.best_known = round(knows[seat].best_known(), 6)


def _clear(turn: Turn) -> None:
    turn.clear_annotations()
    for name in ("questions", "pairs", "learnable", "informative", "stated", "volunteered", "redundant"):
        setattr(turn, name, [])
    turn.seeking = False


def _reply(
    message: _Unanswered | None, turn: Turn, words: str, knowledge: Knowledge | None, state: GameState | None
) -> None:
    """Annotates `turn`, the reply with `words` to `message`, if there is one, by the seat that has this `knowledge`."""
    roster = state.roster if state is not None else None
    pairs = message.reading.asked if message is not None else ()
    turn.stated = stated_pairs(pairs, words, roster) if words and roster is not None else []
    informs = _informs(message, turn, words, state) if turn.stated else []
    if message is None:
        if knowledge is not None:
            knowledge.update(informs)
        return
    question = message.turn
    if turn.stated and roster is not None:
        more = _answered(pairs, turn.stated, message.words, message.previous, words, roster)
        pairs = (*pairs, *more)
        question.pairs, question.seeking = list(pairs), message.reading.seeking or bool(more)
        kinds = {*message.reading.kinds, *(["pair"] if more else [])}
        question.questions = [kind for kind in KINDS if kind in kinds]
    new = [pair for pair in informs if knowledge.informative(pair)] if knowledge is not None else []
    question.informative = [pair for pair in new if pair in pairs]
    question.learnable = (question.learnable or []) + [
        p for p in question.informative if p not in message.reading.asked
    ]
    if knowledge is not None and "open" not in (question.questions or ()):
        question.volunteered = [pair for pair in turn.stated if knowledge.informative(pair) and pair not in pairs]
    if not question.seeking:
        if knowledge is not None:
            knowledge.update(informs)
        return
    replies = answers(pairs, words, roster) if pairs and words and roster is not None else {}
    question.answered = bool(replies) if pairs else bool(turn.stated) or (bool(words) and denies_score(words, roster))
    if knowledge is not None and roster is not None:
        missing = [pair for pair, answer in replies.items() if answer == "none"]
        refusals = refused([pair for pair in pairs if pair not in replies], words, roster)
        _credit(question, knowledge.ask(pairs, informs, missing, refusals))


def _informs(message: _Unanswered | None, turn: Turn, words: str, state: GameState | None) -> list[Pair]:
    """Returns the pairs of which a reply states something true that the message before it did not state itself."""
    if state is None or turn.seat not in (0, 1):
        return []
    pairs, text = (message.reading.asked, message.words) if message is not None else ((), "")
    return informs(pairs, text, words, state.displayed(turn.seat), state.roster)


def _no_reply(message: _Unanswered | None, knowledge: Knowledge | None) -> None:
    if message is not None and message.reading.seeking:
        message.turn.answered = False
        if knowledge is not None:
            _credit(message.turn, knowledge.ask(message.reading.asked, []))


def _credit(question: Turn, worth: Worth) -> None:
    question.question_value = round(worth.value, 6)
    question.gain = round(worth.gain, 6)
    question.regret = round(worth.regret, 6) if worth.regret is not None else None
    question.question_rank = round(worth.rank, 6) if worth.rank is not None else None
    question.redundant = list(worth.redundant)


def _answered(
    asked: Sequence[Pair], stated_pairs: Sequence[Pair], text: str, previous: str, reply: str, roster: Roster
) -> list[Pair]:
    """Returns the pairs that a message asked about besides `asked`, since the reply states the scores of `stated_pairs`. Never raises.

    Args:
        asked: the pairs that it asks about by its own words; none if it is no sentence.
        text, previous, reply: the message, the partner's words before it and after it.
    """
    unasked = set(stated_pairs).difference(asked)
    if not unasked:
        return []
    stated = set(read(text, roster).statements)
    unasked -= {pair for pair, value in read(reply, roster).statements if (pair, value) in stated}
    return [pair for pair in stated_pairs if pair in unasked] if unasked <= _named(text, previous, roster) else []


def _named(text: str, previous: str, roster: Roster) -> set[Pair]:
    """Returns every pair of a reviewer and a paper that a message names.

    If it names one side only, the other is what the partner named last before it.
    """
    reviewers, papers = by_side(body(text, roster))
    if not reviewers and not papers:
        return set()
    before = body(previous, roster)
    reviewers = reviewers or by_side(last_named(before, "R"))[0]
    papers = papers or by_side(last_named(before, "P"))[1]
    return set(itertools.product(reviewers, papers))
