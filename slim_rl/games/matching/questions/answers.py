"""Reading of a reply: per pair asked about a value, a denial or neither; whether it refuses or informs.

A value counts for a pair if the reply states it next to the pair's names. If the reply names nobody else, it also counts if it can only
be the answer: one number for one pair, or as many numbers as pairs, in the order asked. "Quite good" is not a value.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from slim_rl.games.matching.reading.masking import body, sentences, words
from slim_rl.games.matching.reading.pairing import NUMBER, by_side, stated_values, without_bounds
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.reading.wording import has
from slim_rl.games.matching.roster import Pair, Roster

Answer = Literal["value", "none"]

_BLANK = re.compile(r"(?<=[:=])\s*\?|(?<=\s)\?(?=,| for\b| on\b)")  # as in a player's table


def answers(asked: Sequence[Pair], reply: str, roster: Roster) -> dict[Pair, Answer]:
    """Returns the pairs of `asked` that the reply answers, and how. Never raises."""
    result: dict[Pair, Answer] = {pair: "value" for pair in stated_pairs(asked, reply, roster) if pair in set(asked)}
    for clause in _clauses(reply, roster):
        for part in re.split(r" (?:,|but|and) ", clause):
            if has("no_score", part):
                for pair in asked:
                    if pair not in result and _may_mean(part, pair):
                        result[pair] = "none"
    return result


def refused(unanswered: Sequence[Pair], reply: str, roster: Roster) -> list[Pair]:
    """Returns the unanswered pairs that the reply refuses to answer, not stating whether there is a score. Never raises."""
    if not unanswered or not has("refuses", body(reply, roster)):
        return []
    refusals = [clause for clause in _clauses(reply, roster) if has("refuses", clause)]
    return [pair for pair in unanswered if any(_may_mean(clause, pair) for clause in refusals)]


def denies_score(reply: str, roster: Roster | None) -> bool:
    """Returns True if the reply denies having a score for something."""
    return any(has("no_score", clause) for clause in _clauses(reply, roster))


def stated_pairs(asked: Sequence[Pair], reply: str, roster: Roster) -> list[Pair]:
    """Returns the pairs whose value the reply states, asked about or not, each once. Never raises."""
    return list(dict.fromkeys(pair for pair, _ in stated(asked, reply, roster)))


def stated(
    asked: Sequence[Pair], reply: str, roster: Roster, number: re.Pattern[str] = NUMBER
) -> list[tuple[Pair, float]]:
    """Returns the values that the reply states, in order. Never raises.

    They stand next to names, or one `number` answers each pair asked about ("62." to "Ava on BLEU?").
    """
    result = list(read(_BLANK.sub(" unknown", reply), roster).statements)
    if not result and asked:
        text = body(reply, roster)
        numbers = number.findall(_may_answer(text))
        if len(numbers) == len(asked) and all(map(set.issubset, by_side(text), zip(*asked, strict=True))):
            result = [(pair, float(value)) for pair, value in zip(asked, numbers, strict=True)]
    return result


def informs(
    asked: Sequence[Pair], message: str, reply: str, table: Sequence[Sequence[int | None]], roster: Roster
) -> list[Pair]:
    """Returns the pairs, each once, of which the reply states a value that informs. Never raises.

    It informs if it is in the speaker's `table`, and the `message` itself does not name it for the pair. A false value does not inform, and
    neither does an echo.
    """
    named = repeatable(asked, message, roster)
    values = (value for value in stated(asked, reply, roster) if value not in named)
    return list(dict.fromkeys((r, p) for (r, p), value in values if table[r][p] == value))


def repeatable(asked: Sequence[Pair], message: str, roster: Roster) -> set[tuple[Pair, float]]:
    """Returns the values that a message names next to a pair; without a name, of each pair asked about."""
    result: set[tuple[Pair, float]] = set()
    for clause, _ in sentences(body(message, roster)):
        result.update(stated_values(clause))
        if not any(by_side(clause)):
            result.update((pair, float(value)) for pair in asked for value in NUMBER.findall(clause))
    return result


def _may_answer(text: str) -> str:
    """Returns the sentences of a masked reply that may hold a score; none of a refusal, and no denial."""
    if has("refuses", text):
        return ""
    return without_bounds(" . ".join(sentence for sentence, _ in sentences(text) if not has("no_score", sentence)))


def _clauses(reply: str, roster: Roster | None) -> Iterator[str]:
    text = body(_BLANK.sub(" unknown", reply), roster or Roster.default())
    return (words(part) for sentence, _ in sentences(text) for part in sentence.split(";"))


def _may_mean(text: str, pair: Pair) -> bool:
    """Returns True if the text names the pair's reviewer and paper, or leaves them out."""
    return all(not named or index in named for named, index in zip(by_side(text), pair, strict=True))
