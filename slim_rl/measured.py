"""Instruments: what a game's questions ask and are worth, apart from the game itself, which is played without.

    measured(game).annotate(dialogue)

Every member is optional: without one, the game is played and trained on without what the member serves. All are functions of a
finished dialogue, or of a game state, and know no settings.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slim_rl.environment import BaseEnvironment, load_object

# Two arrays (games, most + 1): reward after k questions, and expected gain of the next (-inf: nothing is left to ask)
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
NO_FAULT = "(no fault)"  # end of the name of a check that only counts the opportunities of the others


@dataclass(frozen=True, slots=True)
class ScriptedPlayer:
    """Program in the policy's seat that shows which behaviour a game rewards (`slim-rl lab incentives`).

    Attributes:
        name: name in tables.
        player: object with `identity` and `async act(view)`, as a partner.
        questions: number of questions it asks. A player without questions shows the reward without asking.
        curve: name of a line of players that differ only in their number of questions; "": none. The line "random" is judged, and
            its player without questions is the honest one that others are compared with.
        against: name of the honest player that this cheat must not outdo; "": it is no cheat.
    """

    name: str
    player: Any
    questions: int
    curve: str = ""
    against: str = ""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Games of a scripted player from which a tiny model learns (`slim-rl lab warmstart`).

    Attributes:
        player: player as in `ScriptedPlayer`, possibly with thoughts (`Turn.thought`).
        partners: partner -> its share of the games, as `partner.mixture`.
        games: default number of games.
        opening: whether to learn the first token of a game too, which decides between a message and an action.
        deals: function from a number to as many games of the lesson, as (game_id, state); None: games of the config.
    """

    player: Any
    partners: Mapping[str, Any]
    games: int = 0
    opening: bool = True
    deals: Callable[[int], Iterable[tuple[str, Any]]] | None = None


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Material that teaches a game to a tiny model.

    Attributes:
        demonstrations: `warmstart.games` games that show how to play.
        lessons: further lessons by name, `warmstart.lessons` games of each.
        speaker: player whose messages contain all words of the game; the tokenizer is trained on its games.
        words: further texts for the tokenizer, such as numbers that become one token each.
    """

    demonstrations: Lesson
    lessons: Mapping[str, Lesson]
    speaker: Any
    words: Iterable[str] = field(default=())


@dataclass(frozen=True, slots=True)
class Gain:
    """Expected gain of a turn in the state value.

    Attributes:
        expected: expected gain of the action taken; None: the realised gain is credited.
        baseline: expected gain of a random informative question at that time.
    """

    expected: float | None
    baseline: float = 0.0


class Instrument:
    """Measures of a game's questions (`BaseEnvironment.instrument`); none by default. It keeps no state.

    Class attributes:
        question_kinds: kind of question -> its title in reports, such as {"pair": "about a pair"}. Each is counted, and so are
            further kinds that `annotate` returns.
        annotator_version: version of `annotate`; a log annotated by another version is annotated again when it is read.
    """

    question_kinds: ClassVar[Mapping[str, str]] = {}
    annotator_version: ClassVar[int] = 1

    def annotate(self, dialogue: Any) -> None:
        """Fills in the annotation fields of a finished dialogue's turns, and facts about all of it in `dialogue.columns`.

        Each fact, such as {"board": 3}, is a column of the log's frame. Increase `annotator_version` when the same dialogue gets
        other annotations.
        """
        return

    def state_values(self, dialogue: Any) -> list[float]:
        """Returns the state value (`Turn.state_value`) before each of the policy's turns of an annotated `Dialogue`.

        It is the expected reward of the best action given what the policy knows. `train.reward: turn_credit` needs it.
        """
        return [0.0 for turn in dialogue.turns if turn.role == "policy"]

    def expected_gains(self, dialogue: Any) -> list[Gain]:
        """Returns the expected gain in the state value of each of the policy's turns of an annotated `Dialogue`.

        `train.reward: expected_credit` needs it.
        """
        return [Gain(0.0) for turn in dialogue.turns if turn.role == "policy"]

    def partner_faults(self, dialogue: Any) -> Mapping[str, tuple[int, int]]:
        """Returns the partner's faults in a finished `Dialogue`: a phrase such as "stated a false value" -> (count, opportunities).

        A phrase that ends in `NO_FAULT` is shown by the audit without being a fault.
        """
        return {}

    def asks(self, text: str, game_state: Any = None) -> bool:
        """Returns True if a message seeks information; `game_state`: its game, None if unknown."""
        return False

    def questions_worth_asking(self, game_state: Any, seat: int, number: int, seed: int) -> list[str]:
        """Returns at most `number` actions that ask `seat`'s open questions, to be forced on a policy.

        They serve `--mode forced:K` in evaluation.
        """
        return []

    def references(self, games: Sequence[tuple[Any, int]]) -> dict[str, dict[str, Any]]:
        """Returns rewards to compare a policy with, such as a random plan's, by name.

        Each has ``about`` (a phrase), ``rewards`` (one per game) and ``drawn`` (whether figures show the line).

        Args:
            games: (game state, seat of the policy) per game.
        """
        return {}

    def people(self, path: Path, games: Sequence[tuple[Any, int]]) -> dict[str, dict[str, Any]]:
        """Returns such rewards of recorded human games in a file. Raises DataError if the file cannot be used."""
        return {}

    def viewer_board(self, game_state: Any, seat: int) -> dict[str, Any] | None:
        """Returns the board for the report's viewer (see the matching game's `references.viewer_board`), or ``{"text": ...}``; None for no board."""
        return None

    def frontier(self, games: Sequence[tuple[Any, int]], most: int, seed: int = 0) -> Mapping[str, Curve]:
        """Returns the curve of each simulated asker over 0, 1, ..., `most` questions, in the games' order.

        "greedy" is the ideal asker of the reward-gap decomposition: it asks the best question, one at a time.
        """
        return {}

    def scripted_players(self, game: Any, questions: Sequence[int]) -> Sequence[ScriptedPlayer]:
        """Returns players that ask, that avoid asking, and that cheat; empty: the `frontier` replaces them.

        Args:
            game: the config's `game` section.
            questions: numbers of questions for the players that ask.
        """
        return ()

    def curriculum(self, config: Any) -> Curriculum | None:
        """Returns the curriculum of `slim-rl lab warmstart` for a `Config`; None if the game has none."""
        return None

    def baselines(self, game: Any, price: float = 0.0, number: int = 4) -> Mapping[str, Any]:
        """Returns scripted reference policies by name, each with `identity` and `async act(view)`.

        Examples are "random" and "solo", a floor, and "ideal", a ceiling. `slim-rl evaluate --policy` plays
        them.

        Args:
            game: the config's `game` section.
            price: question cost, above which a policy stops asking.
            number: number of questions of policies such as "forced:4".
        """
        return {}


def rank(value: float, others: ArrayLike) -> float | None:
    """Returns the rank of a value among others: 0 below all of them, 1 above, ties half; None without others."""
    more = value - np.asarray(others, dtype=float)
    return float(np.where(abs(more) < 1e-12, 0.5, more > 0).mean()) if more.size else None


def says(game: type[BaseEnvironment] | None, name: str) -> bool:
    """Returns True if a game's instrument has a member of its own."""
    return getattr(type(measured(game)), name) is not getattr(Instrument, name)


@cache
def measured(game: type[BaseEnvironment] | None) -> Instrument:
    """Returns the instrument of a game. Raises ConfigError if the game names one that cannot be imported."""
    if game is None or not game.instrument:
        return Instrument()
    made: Instrument = load_object(game.instrument, f"{game.__name__}.instrument", "examples.treasure.Compass")()
    return made
