"""Annotations of a finished dialogue: questions, answers, values, and the partner's faults. They depend on the dialogue alone.

What a question is about (`pairs`) is ("trait", "hat") or ("character", "Mara"). It can be learned while its answer is not known beforehand,
and is informative once the answer said yes or no. When the same dialogue would get other annotations, `GuessWhoEnv.annotator_version` is raised.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from examples.guess_who.board import GameBoard, Question
from examples.guess_who.reading import answer_of, mentioned, read
from examples.guess_who.worth import Suspects
from slim_rl import DataError, Dialogue, Turn, rank

KINDS: Mapping[str, str] = {
    "trait": "about one trait",
    "character": "about one character",
    "repeat": "what was asked before",
    "open": "in general, or about several things",
}


def annotate(dialogue: Dialogue) -> None:
    """Fills the annotations of every turn, and the columns ``board`` (characters on it), ``left`` (who are left in the end), ``bits`` (what
    the questions were expected to tell, in bits) and ``bits_told`` (what the answers told). Nothing for another game's dialogue.
    """
    for turn in dialogue.turns:
        _clear(turn)
    try:
        board = GameBoard.from_dict(dialogue.game_state)
    except DataError:
        return
    suspects, asked, bits = Suspects(board), set[Question](), 0.0
    last: Turn | None = None
    for turn, reply in _spoken(dialogue):
        turn.state_value = suspects.chance if turn.role == "policy" else None
        last = turn
        if turn.action is None or turn.action.get("kind") != "message":
            continue
        if question := _fill(turn, suspects, asked):
            bits += suspects.bits(question)
            asked.add(question)
            _answered(turn, question, reply, suspects)
    if last is not None and last.role == "policy":
        last.best_known = suspects.true_chance
    for turn in dialogue.turns:
        if turn.role == "policy" and turn.seat == 1:  # it knows the character from the first
            turn.state_value = 1.0
    dialogue.columns |= {
        "board": len(board.names),
        "left": suspects.left.bit_count(),
        "bits": round(bits, 6),
        "bits_told": round(math.log2(len(board.names) * suspects.chance), 6),
    }


def _spoken(dialogue: Dialogue) -> Iterator[tuple[Turn, Turn | None]]:
    """Yields the asker's turns, each with its valid reply or None."""
    for i, turn in enumerate(dialogue.turns):
        if turn.seat == 0:
            later = (other for other in dialogue.turns[i + 1 :] if other.error is None)
            reply = next(later, None) if turn.error is None else None
            yield turn, reply if reply is not None and reply.seat == 1 else None


def _clear(turn: Turn) -> None:
    turn.clear_annotations()
    turn.questions, turn.pairs, turn.learnable, turn.informative, turn.redundant = [], [], [], [], []
    turn.stated = []
    turn.seeking = False


def _fill(turn: Turn, suspects: Suspects, asked: set[Question]) -> Question | None:
    """Annotates a message's question from its text, and returns the question if it is plain."""
    message = read(turn.text)
    if not message.asks:
        return None
    turn.seeking, turn.answered, turn.question_value, turn.gain = True, False, 0.0, 0.0
    if message.question is None:
        turn.questions = ["open"]
        return None
    question = message.question
    turn.questions, turn.pairs = ["repeat" if question in asked else question[0]], [question]
    turn.regret = suspects.best_expected_value - suspects.expected_value(question)
    turn.learnable = [question] if question not in asked and suspects.splits(question) else []
    turn.redundant = [] if turn.learnable else [question]
    if turn.learnable:
        others = [other for other in suspects.board.questions if suspects.splits(other) and other not in asked]
        turn.question_rank = rank(suspects.bits(question), [suspects.bits(o) for o in others if o != question])
    return question


def _answered(turn: Turn, question: Question, reply: Turn | None, suspects: Suspects) -> None:
    """Takes in the reply to a plain question."""
    answer = answer_of(reply.text) if reply is not None else None
    if reply is None or answer is None:
        return
    turn.informative = [question] if suspects.splits(question) else []
    reply.stated, turn.answered = [question], True
    before, truly = suspects.chance, suspects.true_chance
    suspects.update(question, answer)
    turn.question_value, turn.gain = suspects.chance - before, suspects.true_chance - truly


def state_values(dialogue: Dialogue) -> list[float]:
    """Returns the probability of a correct guess before each of the policy's turns, given its knowledge."""
    return [turn.state_value or 0.0 for turn in dialogue.turns if turn.role == "policy"]


def partner_faults(dialogue: Dialogue) -> dict[str, tuple[int, int]]:
    """Answers that are false, plain questions without an answer, and replies that name what was not asked about."""
    try:
        board = GameBoard.from_dict(dialogue.game_state)
    except DataError:
        return {}
    false = answers = open_ = plain = told = replies = 0
    for turn, reply in _spoken(dialogue):
        if reply is None:
            continue
        question, answer = read(turn.text).question, answer_of(reply.text)
        replies += 1
        told += not set(mentioned(reply.text)) <= set(mentioned(turn.text))
        if question is None:
            continue
        plain, open_ = plain + 1, open_ + (answer is None)
        if answer is not None:
            answers, false = answers + 1, false + (answer != board.truth(question))
    return {
        "gave a false answer": (false, answers),
        "left a plain question open": (open_, plain),
        "told what it was not asked about": (told, replies),
    }
