"""Base class of games, for one seat or two, and the view that a seat has of a game.

A game is turn-based. `turn` is the seat (0 or 1) whose action `step` takes next. After a malformed action the turn stays with its
author, who reads why. A one-seat game keeps `turn` at 0 and answers the player itself.

A game needs no more than this to be played, logged and trained on. Its questions are measured by an
instrument apart from it (`measured.Instrument`).
"""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from slim_rl import bundled
from slim_rl.errors import ConfigError, DataError, misfit
from slim_rl.seeds import seed_of

if TYPE_CHECKING:
    from pydantic import BaseModel

MATCHING = "slim_rl.games.matching.MatchingEnv"  # default game of configs and logged dialogues


@dataclass(frozen=True, slots=True)
class Utterance:
    """Action in a game, as the reading seat sees it.

    Attributes:
        seat: its author, 0 or 1.
        text: text of the action, with its tag.
        error: reason why the game refused it; None for a valid action. Only its author sees a refused action.
        observation: the game's message to the reader, if it is the reader's turn: the action in the game's words, or its answer.
    """

    seat: int
    text: str
    error: str | None = None
    observation: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """Everything that a seat may see when it is its turn, and nothing else.

    Attributes:
        seat: seat of the viewer.
        rules: the game's rules (a system prompt).
        state: the opening description, with the seat's private information.
        history: everything that this seat has seen so far, oldest first.
        private: the game's own structured form of what the seat sees (for the matching game, a `MatchingView`).
        seed: seed of the dialogue, for all random choices of a player, so that a dialogue can be repeated exactly.
        price: question cost of this seat, as a share of the highest reward; None if it reads none.
        prompt: a policy's opening chat messages; empty for a partner.
    """

    seat: int
    rules: str
    state: str
    history: tuple[Utterance, ...]
    private: Any
    seed: int
    price: float | None = None
    prompt: tuple[dict[str, str], ...] = ()

    @property
    def observation(self) -> str:
        """Returns the game's current message to the seat: the last action or the game's reply; before any, the opening state."""
        return self.history[-1].observation if self.history else self.state

    @property
    def sent(self) -> list[str]:
        """Returns the texts of the seat's own valid actions."""
        return [utterance.text for utterance in self.history if utterance.seat == self.seat and utterance.error is None]

    @property
    def received(self) -> list[str]:
        """Returns the texts of the other seat's actions."""
        return [utterance.text for utterance in self.history if utterance.seat != self.seat]


@dataclass(frozen=True, slots=True)
class Board:
    """Table for a person.

    Attributes:
        title: heading of the table.
        rows, columns: names of rows and columns.
        cells: text of each cell, by row and column.
        marked: (row, column) of highlighted cells, such as the best plan's.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    marked: frozenset[tuple[int, int]] = field(default_factory=frozenset)


class BaseEnvironment(ABC):
    """Turn-based text game. Subclass it to train on a custom game (docs/reference/environment-api.md and `examples/`).

    `info` of `step` holds: ``seat`` (author), ``action`` (a JSON-able dict, or None if malformed), ``error`` (a sentence, or
    None), and once done ``end``: the reason, one of ``agreed``, ``finished``, ``rejected``, ``max_turns``,
    ``errors``.

    Class attributes:
        seats: 1 or 2.
        Settings: a pydantic model of the config's `game` section; None: its keys are the constructor's arguments.
        PlayerSettings: pydantic model of `warmstart.player`, which `Instrument.curriculum` reads; None: no keys.
        instrument: dotted path of the `measured.Instrument` of its questions; empty: they are not measured.
        partners: scripted partners by name, each a dotted path of a class with `identity` and `async act(view)`.
        tags: words in brackets that actions begin with, such as ("message", "propose"); a person's line without a tag gets the
            first. Empty: actions are plain text.
        reward_range: minimum and maximum reward. A dialogue with a reward outside it fails.
        undealt: settings that do not change the generated games: arms that differ in them play the same file.
        max_errors: number of consecutive refused actions that ends the game, shown to a person; 0: no limit.
        rules: "none" leaves the rules out of a policy's opening messages.
    """

    seats: int = 1
    turn: int = 0
    Settings: ClassVar[type[BaseModel] | None] = None
    PlayerSettings: ClassVar[type[BaseModel] | None] = None
    instrument: ClassVar[str] = ""
    partners: ClassVar[Mapping[str, str]] = {}
    tags: ClassVar[tuple[str, ...]] = ()
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    undealt: ClassVar[tuple[str, ...]] = ("max_errors",)
    max_errors: int = 0
    rules: str = "full"

    @abstractmethod
    def reset(self, game_state: Any) -> Any:
        """Starts a game from a state that it may change. Players read the state from `get_state_description`."""

    @abstractmethod
    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        """Plays an action of seat `turn`. Returns (observation of the next seat, done, info). Raises for no text."""

    @abstractmethod
    def get_normalized_reward(self) -> float:
        """Returns the reward so far, in `reward_range`; both seats share it."""

    @abstractmethod
    def get_state_description(self, seat: int = 0) -> str:
        """Returns the private information of `seat`, as its opening user message."""

    # --- members with a default

    def get_prompt_prefix(self, seat: int = 0) -> str:
        """Returns the rules, as a system prompt for `seat`; empty: none."""
        return ""

    @classmethod
    def sample_state(cls, seed: int) -> Any:
        """Returns a random state for `reset`, JSON-able. A game whose states come from files needs no such member."""
        raise ConfigError(
            f"{cls.__name__} generates no games: add a classmethod sample_state(seed), or name files of games in data.train and data.eval."
        )

    @classmethod
    def deal(cls, game: Any, seed: int, split: str, numbers: range, workers: int = 1) -> Iterator[tuple[str, Any]]:
        """Yields the games of the given numbers as (game_id, state); a state is JSON-able or has `to_dict()`.

        Args:
            game: the config's `game` section.
            split: "train" or "eval", which never share a game.
            workers: maximum number of processes.
        """
        for number in numbers:
            yield f"{split}-{seed}-{number:05d}", cls.sample_state(seed_of(seed, split, number))

    def solution(self) -> dict[str, Any]:
        """Returns facts about the game's best outcome for the games file, JSON-able."""
        return {}

    def get_private_view(self, seat: int) -> Any:
        """Returns the structured view of `seat` for scripted players; None if the game has none."""
        return None

    def board(self, seat: int | None) -> Board | None:
        """Returns the table for a person at `seat`; for None the complete table, once the game is over."""
        return None

    def prompt(self, seat: int = 0) -> list[dict[str, str]]:
        """Returns the opening chat messages of `seat`."""
        rules = "" if self.rules == "none" else self.get_prompt_prefix(seat)
        return [
            *([{"role": "system", "content": rules}] if rules else []),
            {"role": "user", "content": self.get_state_description(seat)},
        ]

    def close(self) -> None:  # noqa: B027  most games hold nothing
        """Releases the game's resources; nothing by default."""


def as_dict(game_state: Any) -> dict[str, Any]:
    """Returns a game state in its JSON-able form. Raises DataError if it is neither a mapping nor has `to_dict`."""
    if not isinstance(game_state, Mapping):
        if not hasattr(game_state, "to_dict"):
            raise DataError(
                f"A game state must be a mapping, such as {{'cards': [3, 5]}}, but is {type(game_state).__name__}; correct the "
                "game's sample_state or deal, or its file."
            )
        game_state = game_state.to_dict()
    return dict(game_state)


class NoObservation:
    """Result of a `reset` without an observation. Unpacked, as Gymnasium's is, it raises a TypeError that names the place."""

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("reset returns no observation; get_state_description has it, and get_prompt_prefix the rules.")


def reset_to(env: BaseEnvironment, game_state: Any) -> None:
    """Resets `env` to a copy of a game state. Raises ConfigError if `reset` returns text that no player reads."""
    returned = env.reset(copy.deepcopy(game_state))
    text = returned[0] if isinstance(returned, tuple) and returned else returned
    if isinstance(text, str) and text.strip() not in env.get_state_description(env.turn):
        raise ConfigError(
            f"environment: {type(env).__name__}.reset returns {text[:60]!r}, which no player reads; return nothing there, and this text from "
            "get_state_description."
        )


def step_of(env: BaseEnvironment, text: str) -> tuple[str, bool, dict[str, Any]]:
    """Plays an action and returns (observation, done, info). Raises ConfigError if `step` returns anything else."""
    returned = env.step(text)
    shaped = isinstance(returned, tuple) and list(map(type, returned))[::2] == [str, dict] and len(returned) == 3
    types = {"action": dict | None, "error": str | None}
    if not shaped or not all(isinstance(returned[2].get(name), kind) for name, kind in types.items()):
        raise ConfigError(
            f"environment: {type(env).__name__}.step returned {str(returned)[:60]}; return (observation, done, info): a text, True or False, "
            "and a dict, whose action is a dict or None and whose error a text or None."
        )
    return returned


# environment variable with the folder that the run was started in, for remote processes
STARTED_IN = "SLIM_RL_STARTED_IN"


@cache
def environment_class(path: str) -> type[BaseEnvironment]:
    """Returns the class of a game that the user names, which runs its code. For names in data use `game_of`.

    Raises ConfigError if there is no such environment.
    """
    made = load_object(path, "environment", "examples.secret_number.SecretNumber")
    if not _is_game(made):
        raise ConfigError(
            f"environment: {path} is not a subclass of slim_rl.environment.BaseEnvironment; name one that is."
        )
    return made  # type: ignore[no-any-return]


def make_environment(config: Any) -> BaseEnvironment:
    """Returns a new environment of the game of a `Config`.

    Its constructor gets the settings of the `game` section: all of them, or, if the game has a `Settings` model, those that it
    takes. Raises ConfigError if the constructor refuses them.
    """
    made, settings = environment_class(config.environment), config.game
    try:
        return made(**(settings if made.Settings is None else arguments_for(made, settings.model_dump())))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"The game section does not suit {config.environment}: {misfit(error)}.") from error


def arguments_for(made: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that a constructor takes."""
    taken = _parameters(made)
    return {name: value for name, value in arguments.items() if name in taken}


@cache  # called for every game
def _parameters(made: Any) -> frozenset[str]:
    passes_on = isinstance(made, type) and inspect.getfullargspec(made).varkw
    return (_parameters(made.__base__) if passes_on else frozenset()) | inspect.signature(made).parameters.keys()


def game_of(path: str) -> type[BaseEnvironment] | None:
    """Returns the class of a game that data, such as a log, names; None if it may not be imported.

    Data never imports a user's code: the game comes with slim_rl, or was imported before, for a config or for `--game`.
    """
    if is_ours(path):
        with suppress(ConfigError):
            return environment_class(path)
    module, _, name = path.rpartition(".")
    made = getattr(sys.modules.get(module), "__dict__", {}).get(name)
    return made if _is_game(made) else None


def is_ours(path: str) -> bool:
    """Returns True if a game comes with slim_rl, so that a log may name it."""
    return path.startswith("slim_rl.games.")


def _is_game(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseEnvironment)


def load_object(path: str, key: str, example: str) -> Any:
    """Returns the object of a user's dotted path. Raises ConfigError, naming the config's `key`, if it cannot be imported."""
    module, _, name = path.rpartition(".")
    # The user's folders, here and where the run was started; then ours, for `examples.` if there is no such folder here.
    for folder in (str(Path.cwd()), os.environ.get(STARTED_IN, ""), str(bundled.ROOT)):
        if folder and folder not in sys.path and not path.startswith("slim_rl."):
            sys.path.append(folder)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{key}: {path} cannot be imported ({error}); give a dotted path such as {example}, with its folder on PYTHONPATH."
        ) from error
