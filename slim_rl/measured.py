"""What the instrument asks of a game: what its dialogues ask and tell, what that was worth, and what to compare it with.

    every member is optional, and without it the project does without: a game that has none is played and trained on all the same

All are class methods: they are given a finished dialogue, or a game state, and know no settings. The last one is of another kind: what a
tiny model is taught the game by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel

from slim_rl.environment import BaseEnvironment

# Two arrays (games, most + 1): the reward after so many questions, and what the next is expected to add (-inf: nothing is left to ask)
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
NO_FAULT = "(no fault)"  # how a check of the partner ends that tells only how far the others could see


@dataclass(frozen=True, slots=True)
class ScriptedPlayer:
    """A program in the policy's seat that shows what a game pays (`slim-rl lab incentives`).

    Attributes:
        name: what tables call it.
        player: has `identity` and `async act(view)`, as a partner has.
        questions: how many it asks. One that asks none shows what can be earned without asking.
        curve: the line of players that differ in their number of questions alone; "random" is the one that is judged, and its
            player without questions is the honest one that others are compared with. Empty: on none.
        against: of a cheat, the name of the honest player that it must not outdo.
    """

    name: str
    player: Any
    questions: int
    curve: str = ""
    against: str = ""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Games of a scripted player that a tiny model learns from (`slim-rl lab warmstart`).

    Attributes:
        player: as of `ScriptedPlayer`; it may think aloud (`Turn.thought`).
        partners: kinds of partner it plays with, and the share of each.
        games: how many, where the config does not say.
        opening: whether the first token of a game is learned too, which decides whether to speak or to act.
        deals: so many games of the lesson's own, as (game_id, state); None: games as the config deals them.
    """

    player: Any
    partners: Mapping[str, float]
    games: int = 0
    opening: bool = True
    deals: Callable[[int], Iterable[tuple[str, Any]]] | None = None


@dataclass(frozen=True, slots=True)
class Curriculum:
    """What a tiny model is taught a game by.

    Attributes:
        demonstrations: how the game is played; `warmstart.games` of them.
        lessons: by name, what else there is to learn; as many of each as `warmstart.lessons` says.
        speaker: a player who says all there is to say: the tokenizer is trained on its games.
        words: further texts for the tokenizer, such as numbers that shall each be one token.
    """

    demonstrations: Lesson
    lessons: Mapping[str, Lesson]
    speaker: Any
    words: Iterable[str] = field(default=())


@dataclass(frozen=True, slots=True)
class Gain:
    """What a turn was expected to add to the state value when it was taken.

    Attributes:
        expected: by what it did; None: it is paid by what it did add.
        baseline: by a question drawn at random among those that would tell something then.
    """

    expected: float | None
    baseline: float = 0.0


class MeasuredEnvironment(BaseEnvironment):
    """A game whose questions can be measured.

    Class attributes:
        question_kinds: its kinds of question, and what a reader is told of each, such as {"pair": "about a pair"}. They are counted
            even where there are none; others that `annotate` finds are counted too.
        PlayerSettings: a pydantic model of the config's `warmstart.player`, which `curriculum` finds there; None: it has no keys.
        annotator_version: version of `annotate`; a log annotated by another version is annotated again when it is read.
    """

    question_kinds: ClassVar[Mapping[str, str]] = {}
    PlayerSettings: ClassVar[type[BaseModel] | None] = None
    annotator_version: ClassVar[int] = 1

    @classmethod
    def annotate(cls, dialogue: Any) -> None:
        """Fills in what the turns of a finished `Dialogue` ask and tell (the annotation fields of `Turn`), and in `dialogue.columns`
        what there is to say of it as a whole, such as {"board": 3}: each is a column of its log's frame. Never raises.

        Raise `annotator_version` when the same dialogue would get other annotations.
        """
        return

    @classmethod
    def state_values(cls, dialogue: Any) -> list[float]:
        """The state value (`Turn.state_value`) before each of the policy's turns of an annotated `Dialogue`: the reward that the best
        action by what it then knows is expected to earn. For `train.reward: turn_credit`, which needs it.
        """
        return [0.0 for turn in dialogue.turns if turn.role == "policy"]

    @classmethod
    def expected_gains(cls, dialogue: Any) -> list[Gain]:
        """What each of the policy's turns of an annotated `Dialogue` was expected to add to the state value when it was taken. For
        `train.reward: expected_credit`, which needs it.
        """
        return [Gain(0.0) for turn in dialogue.turns if turn.role == "policy"]

    @classmethod
    def partner_faults(cls, dialogue: Any) -> Mapping[str, tuple[int, int]]:
        """What the policy's partner did wrongly in a finished `Dialogue`, whether or not it was made to: a phrase such as "stated a
        false value" -> (how often it did, how often it could have). What ends in `NO_FAULT` is shown by the audit, and is none.
        """
        return {}

    @classmethod
    def asks(cls, text: str, game_state: Any = None) -> bool:
        """Whether a message seeks information, in the game that `game_state` is of, if it is given."""
        return False

    @classmethod
    def questions_worth_asking(cls, game_state: Any, seat: int, number: int, seed: int) -> list[str]:
        """At most `number` actions by which `seat` would learn something: what a policy is made to ask in evaluation (`--mode forced:K`),
        and where training explores (`train.exploring_starts`).
        """
        return []

    @classmethod
    def references(cls, games: Sequence[tuple[Any, int]]) -> dict[str, dict[str, Any]]:
        """Rewards to compare a policy with, such as a random plan's: name -> ``about`` (a phrase), ``rewards`` (one a game) and
        ``drawn`` (whether figures show the line). `games`: (game state, the policy's seat).
        """
        return {}

    @classmethod
    def people(cls, path: Path, games: Sequence[tuple[Any, int]]) -> dict[str, dict[str, Any]]:
        """The same of recorded human games in a file. Raises DataError if the file cannot be used."""
        return {}

    @classmethod
    def viewer_board(cls, game_state: Any, seat: int) -> dict[str, Any] | None:
        """What the report's viewer draws of a game (as of `MatchingEnv.viewer_board`), or ``{"text": ...}``; None for nothing."""
        return None

    @classmethod
    def frontier(cls, games: Sequence[tuple[Any, int]], most: int, seed: int = 0) -> Mapping[str, Curve]:
        """Returns what askers reach with 0, 1, ..., `most` questions, in the games' order. "greedy" is the ideal one that the ledger of asking
        compares with: it asks the best question, one at a time.
        """
        return {}

    @classmethod
    def scripted_players(cls, game: Any, questions: Sequence[int]) -> Sequence[ScriptedPlayer]:
        """Players that ask so many questions, that try to do without, and that cheat. None: the `frontier` stands for them.

        Args:
            game: the config's `game` section.
        """
        return ()

    @classmethod
    def curriculum(cls, config: Any) -> Curriculum | None:
        """What `slim-rl lab warmstart` teaches a tiny model by, for a whole `Config`. None: the game cannot be taught so."""
        return None

    @classmethod
    def baselines(cls, game: Any, price: float = 0.0, number: int = 4) -> Mapping[str, Any]:
        """Scripted policies that others are set against, by name, each with `identity` and `async act(view)`: such as "random" and
        "solo", a floor, and "ideal", a ceiling. `slim-rl evaluate --policy` and `slim-rl lab bench` play them.

        Args:
            game: the config's `game` section.
            price: of a question, for one that stops asking where it does not pay.
            number: of questions, for those that ask so many, whose names end in it: "forced:4".
        """
        return {}


def rank(value: float, others: ArrayLike) -> float | None:
    """Where a value stands among others: 0 below all of them, 1 above, ties half. None without others."""
    more = value - np.asarray(others, dtype=float)
    return float(np.where(abs(more) < 1e-12, 0.5, more > 0).mean()) if more.size else None


def says(game: type[BaseEnvironment] | None, name: str) -> bool:
    """Whether a game has a member of `MeasuredEnvironment` of its own."""
    found, ours = getattr(measured(game), name), getattr(MeasuredEnvironment, name)
    return getattr(found, "__func__", found) is not ours.__func__  # a game may name a plain function


def measured(game: type[BaseEnvironment] | None) -> type[MeasuredEnvironment]:
    """A game as the instrument sees it: itself, or, for one that says nothing of its questions or is not at hand, one without any."""
    return game if game is not None and issubclass(game, MeasuredEnvironment) else MeasuredEnvironment
