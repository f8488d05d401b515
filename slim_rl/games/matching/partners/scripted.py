"""Rule-based partners: shy, forthcoming and mute. They state true values only, and answer; they never propose.

    shy          states the score of a pair it is directly asked about, and nothing else. It is vague to a message that asks
                 about more than a few pairs, or that is not a sentence, so that one message cannot get its whole table.
    forthcoming  states its whole table in its first reply; from then on it answers like shy.
    mute         states no score, even if asked directly.

All judge proposals alike (see `judging`). A reply depends on the view alone, its seed included; sentences are few and
regular, so that a small model can learn to read them.
"""

import itertools
import random
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from slim_rl.config import read_yaml
from slim_rl.dialogue.players import Partner, PartnerFailure
from slim_rl.dialogue.record import Turn
from slim_rl.environment import View
from slim_rl.errors import ConfigError
from slim_rl.games.matching.partners.judging import judge
from slim_rl.games.matching.reading.reader import Reading, read
from slim_rl.games.matching.roster import Pair
from slim_rl.games.matching.state import MatchingView
from slim_rl.seeds import seed_of

ACCEPT_FRACTION = 0.75
VERSION = 11  # raised when the same view would get another reply

SENTENCES: dict[str, list[str]] = read_yaml(Path(__file__).with_name("sentences.yaml"))
GREETINGS, VAGUE, SILENT, NOTED = (SENTENCES[name] for name in ("greetings", "vague", "silent", "noted"))
PROPOSE = "Propose a full plan and I will judge it."
BETTER = "I think we can do better."
TABLE = "All my scores:"
EMPTY_TABLE = "I have no scores."
SENTENCES_UP_TO = 4  # the largest n whose table is told in the sentences of single answers


@dataclass
class ScriptedPartner(Partner):
    """Base class of the three.

    Attributes:
        accept_fraction: accept a plan worth this share of the partner's own best plan; 0 accepts every full plan.
        max_pairs: maximum number of pairs that one message may ask about.
        wordings: number of sentences for a score, and for a missing one, 1 to 8; the sentence for a pair is drawn from the
            dialogue's seed.
    """

    kind: ClassVar[str]
    accept_fraction: float = ACCEPT_FRACTION
    max_pairs: int = 2
    wordings: int = 1

    def __post_init__(self) -> None:
        most = len(SENTENCES["scores"])
        if type(self.wordings) is not int or not 1 <= self.wordings <= most:
            raise ConfigError(
                f"partner.args.wordings is {self.wordings!r}, but a scripted partner has 1 to {most} wordings."
            )
        if type(self.max_pairs) is not int or self.max_pairs < 1:
            raise ConfigError(
                f"partner.args.max_pairs is {self.max_pairs!r}, but a message may ask about 1 pair or a larger whole number of them."
            )
        check_chance("accept_fraction", self.accept_fraction, "a share")

    @property
    def identity(self) -> dict[str, Any]:
        """Returns its kind and the settings that are not its class's defaults: a new setting changes no identity."""
        changed = {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }
        return {"kind": self.kind, "version": VERSION, **changed}

    async def act(self, view: View) -> Turn:
        """Returns the next action. Raises PartnerFailure if the game is not the matching game."""
        return Turn(self.action(view))

    def action(self, view: View) -> str:
        """Returns the next action as text; a plain function of the view."""
        game = view.private
        if not isinstance(game, MatchingView):
            raise PartnerFailure(
                f"The {self.kind} partner plays the matching game only: give another game its own partner."
            )
        refused = bool(view.history) and view.history[-1].seat == view.seat and view.history[-1].error is not None
        if game.pending is not None:
            if judge(game, game.pending, self.accept_fraction).accepts:
                return "[accept]"
            return "[reject]" if refused else f"[reject] {BETTER}"
        if refused:
            return f"[message] {NOTED[0]}"
        if not view.received:
            return f"[message] {choose(GREETINGS, view)}"
        at = max(number for number, utterance in enumerate(view.history) if utterance.seat != view.seat)
        before = [utterance.text for utterance in view.history[:at] if utterance.error is None]
        message = read(view.history[at].text, game.roster, before)
        return f"[message] {self.answer(message, view, game)}"

    @abstractmethod
    def answer(self, message: Reading, view: View, game: MatchingView) -> str:
        """Returns the reply to a message."""


@dataclass
class ShyPartner(ScriptedPartner):
    """Partner that answers what it is directly asked, and is vague otherwise.

    Attributes:
        answers: chance that it answers for a pair at all. It is drawn once per dialogue and pair, from the dialogue's seed, so
            that asking again does not help; what is answered at one chance is answered at every higher one too. For another pair it
            states that it will not answer, and not whether it has a score: it never lies.
        score_sentences, denial_sentences: its sentences for a score, and for a missing one, of which it uses the first `wordings`.
    """

    kind = "shy"
    score_sentences: ClassVar[Sequence[str]] = SENTENCES["scores"]
    denial_sentences: ClassVar[Sequence[str]] = SENTENCES["denials"]
    answers: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chance("answers", self.answers)

    def answer(self, message: Reading, view: View, game: MatchingView) -> str:
        if message.asked and len(message.asked) <= self.max_pairs and not message.malformed:
            answered = [pair for pair in message.asked if drawn(view, "answers", pair) < self.answers]
            score_sentences = [self.score(pair, view, game) for pair in answered]
            if len(answered) < len(message.asked):
                score_sentences.append(choose(SILENT, view))
            return " ".join(score_sentences)
        if message.asked or message.general or message.unread:
            return choose(VAGUE, view)
        return PROPOSE if message.suggests else choose(NOTED, view)

    def score(self, pair: Pair, view: View, game: MatchingView) -> str:
        """Returns the sentence on a pair that it answers for, drawn from the dialogue's seed."""
        value = self.value(pair, view, game)
        sentences = (self.denial_sentences if value is None else self.score_sentences)[: self.wordings]
        number = int(drawn(view, "words", pair) * len(sentences)) if len(sentences) > 1 else 0
        return sentences[number].format(names=game.roster.pair(pair), value=value)

    def value(self, pair: Pair, view: View, game: MatchingView) -> int | None:
        """Returns the score that it states; None if it has none."""
        return game[pair]


class ForthcomingPartner(ShyPartner):
    """Partner that states everything in its first reply; shy from then on."""

    kind = "forthcoming"

    def answer(self, message: Reading, view: View, game: MatchingView) -> str:
        if any(TABLE in text for text in view.sent):
            return super().answer(message, view, game)
        return f"{TABLE} {whole_table(game)}"


class MutePartner(ScriptedPartner):
    """Partner that never states a score."""

    kind = "mute"

    def answer(self, message: Reading, view: View, game: MatchingView) -> str:
        if message.asked or message.general:
            return choose(SILENT, view)
        return PROPOSE if message.suggests else choose(NOTED, view)


def check_chance(name: str, value: Any, what: str = "a chance") -> None:
    """Raises ConfigError if the partner's argument `name` is no chance, or whatever it is that lies between 0 and 1."""
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"partner.args.{name} is {value!r}, but {what} lies between 0 and 1.")


def scores(pairs: Iterable[Pair], game: MatchingView) -> str:
    """Returns one sentence per given pair that the partner sees."""
    plainest = SENTENCES["scores"][0]
    return " ".join(plainest.format(names=game.roster.pair(pair), value=game[pair]) for pair in pairs)


def whole_table(game: MatchingView) -> str:
    """Returns all that a seat sees: single sentences on a small board, one clause per reviewer on a larger one."""
    if not game.seen:
        return EMPTY_TABLE
    if game.roster.n <= SENTENCES_UP_TO:
        return scores(game.seen, game)
    rows = []
    for reviewer, row in itertools.groupby(game.seen, key=lambda pair: game.roster.names(pair)[0]):
        values = ", ".join(f"{game.roster.names(pair)[1]} {game[pair]}" for pair in row)
        rows.append(f"{reviewer}: {values}")
    return "; ".join(rows) + "."


def drawn(view: View, what: str, pair: Pair) -> float:
    """Draws a number in [0, 1) for one purpose and pair of this dialogue, always the same."""
    return seed_of(view.seed, what, *pair) / 2**31


def choose(sentences: Sequence[str], view: View) -> str:
    """Draws one of several sentences from the dialogue's seed and turn."""
    return random.Random(view.seed * 1009 + len(view.history)).choice(sentences)
