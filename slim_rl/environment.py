"""What a game is: one small base class, for one seat or two, and what a seat may see.

A game is turn-based. `turn` is the seat (0 or 1) whose action `step` takes next; a malformed action leaves the turn with its
author, who is told why. A one-seat game keeps `turn` at 0 and answers the player itself.

A game is played, logged and trained on with no more than this; nothing else looks inside a game's states. What its questions are and
what they are worth is for those that say more (see `measured`).
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
from slim_rl.errors import ConfigError, DataError
from slim_rl.seeds import seed_of
from slim_rl.signatures import check_methods

if TYPE_CHECKING:
    from pydantic import BaseModel

MATCHING = "slim_rl.games.matching.MatchingEnv"  # the game of a config, and of a logged dialogue, that names none


@dataclass(frozen=True, slots=True)
class Utterance:
    """One thing said in a game, as the seat that reads it sees it.

    Attributes:
        seat: its author, 0 or 1.
        text: what was said, tag included.
        error: why the game refused it; None for a valid action. Only its author sees a refused action.
        observation: what the game then says to the reader, if it is the reader's turn: the same in the game's words, or its answer.
    """

    seat: int
    text: str
    error: str | None = None
    observation: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """All that one seat may see when it is its turn, and nothing else.

    Attributes:
        seat: whose view this is.
        rules: the game's rules (a system prompt).
        state: the opening description: what this seat alone was dealt.
        history: everything this seat has seen so far, oldest first.
        private: the game's own structured form of what the seat sees (for the matching game, a `MatchingView`).
        seed: drawn for this dialogue; whoever acts at random draws from it, so that a dialogue can be repeated exactly.
        price: what a question costs this seat, as a share of the highest reward, if it is told.
        prompt: the chat messages that open the dialogue for a policy: what it was dealt, and told with it. A partner has none.
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
        """What the game says to the seat now: the other's last action, or the game's own reply; before any, what it was dealt."""
        return self.history[-1].observation if self.history else self.state

    @property
    def own(self) -> list[str]:
        """What the seat said, without what the game refused."""
        return [utterance.text for utterance in self.history if utterance.seat == self.seat and utterance.error is None]

    @property
    def received(self) -> list[str]:
        """What the other seat said."""
        return [utterance.text for utterance in self.history if utterance.seat != self.seat]


@dataclass(frozen=True, slots=True)
class Board:
    """A table that a person is shown.

    Attributes:
        title: what it shows.
        rows, columns: their names.
        cells: text of each cell, by row and column.
        marked: (row, column) of the cells to point out, such as the best plan's.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    marked: frozenset[tuple[int, int]] = field(default_factory=frozenset)


class BaseEnvironment(ABC):
    """A turn-based text game. Subclass it to train on a game of your own (docs/reference/environment-api.md and `examples/`).

    `info` of `step` holds: ``seat`` (author), ``action`` (a JSON-able dict, or None if malformed), ``error`` (a sentence, or
    None), and once done ``end``: why the game ended, one of ``agreed``, ``finished``, ``rejected``, ``max_turns``,
    ``errors``.

    Class attributes:
        seats: 1 or 2.
        Settings: a pydantic model of the config's `game` section; None: its keys are the constructor's arguments.
        partners: scripted partners by name, each a dotted path of a class with `identity` and `async act(view)`.
        tags: what actions begin with in brackets, such as ("message", "propose"): a person's line without a tag is given the
            first. Empty: actions are plain text.
        reward_range: the least and the highest reward. A dialogue with another one has failed.
        undealt: settings on which no deal depends: arms that differ in them play the same file of games.
        max_errors: refused actions in a row that end the game, of which a person is told; 0: it has no such limit.
        rules: "none" leaves the rules out of a policy's opening messages.
    """

    seats: int = 1
    turn: int = 0
    Settings: ClassVar[type[BaseModel] | None] = None
    partners: ClassVar[Mapping[str, str]] = {}
    tags: ClassVar[tuple[str, ...]] = ()
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    undealt: ClassVar[tuple[str, ...]] = ("max_errors",)
    max_errors: int = 0
    rules: str = "full"

    @abstractmethod
    def reset(self, game_state: Any) -> Any:
        """Deals the game, from a state of its own to play on. Players read the deal from `get_state_description`."""

    @abstractmethod
    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        """Takes the action of seat `turn`. Returns (what the seat now to act sees, done, info). Never raises for any text."""

    @abstractmethod
    def get_normalized_reward(self) -> float:
        """The reward so far, in `reward_range`; shared by both seats."""

    @abstractmethod
    def get_prompt_prefix(self, seat: int = 0) -> str:
        """The rules, as a system prompt for `seat`."""

    @abstractmethod
    def get_state_description(self, seat: int = 0) -> str:
        """What `seat` is dealt, as the opening user message."""

    # --- with something to go by if a game leaves it out

    @classmethod
    def sample_state(cls, seed: int) -> Any:
        """A deal drawn from `seed`, JSON-able: what `reset` is given. A game whose deals come from files needs none."""
        raise ConfigError(f"{cls.__name__} deals no games itself; give it a classmethod sample_state(seed).")

    @classmethod
    def deal(cls, game: Any, seed: int, split: str, numbers: range, workers: int = 1) -> Iterator[tuple[str, Any]]:
        """The games of these numbers as (game_id, state); a state is JSON-able or has `to_dict()`.

        Args:
            game: the config's `game` section.
            split: "train" or "eval", which never share a game.
        """
        for number in numbers:
            yield f"{split}-{seed}-{number:05d}", cls.sample_state(seed_of(seed, split, number))

    def solution(self) -> dict[str, Any]:
        """What is known of the dealt game's best outcome, JSON-able; kept in the games file beside the game."""
        return {}

    def get_private_view(self, seat: int) -> Any:
        """Structured form of what `seat` sees now, for scripted players. None if the game has none."""
        return None

    def board(self, seat: int | None) -> Board | None:
        """What a person is shown: as `seat` sees it now, or, for None, everything, once the game is over."""
        return None

    def prompt(self, seat: int = 0) -> list[dict[str, str]]:
        """The opening chat messages of `seat`."""
        rules = [{"role": "system", "content": self.get_prompt_prefix(seat)}] if self.rules != "none" else []
        return [*rules, {"role": "user", "content": self.get_state_description(seat)}]

    def close(self) -> None:  # noqa: B027  most games hold nothing
        """Releases what the game holds. Nothing, by default."""


def as_dict(game_state: Any) -> dict[str, Any]:
    """A game state in its JSON-able form. Raises DataError for one that is no mapping and has no `to_dict`."""
    if not isinstance(game_state, Mapping):
        if not hasattr(game_state, "to_dict"):
            raise DataError(
                f"A game state must be a mapping, such as {{'cards': [3, 5]}}, but is {type(game_state).__name__}; correct the "
                "game's sample_state or deal, or its file."
            )
        game_state = game_state.to_dict()
    return dict(game_state)


def reset_to(env: BaseEnvironment, game_state: Any) -> None:
    """Deals a game to `env`, which may play on its state in place: the row and the log keep theirs as it was dealt.

    Raises ConfigError if `reset` returns text that no player would read.
    """
    returned = env.reset(copy.deepcopy(game_state))
    text = returned[0] if isinstance(returned, tuple) and returned else returned
    if isinstance(text, str) and text.strip() not in env.get_state_description(env.turn):
        raise ConfigError(
            f"environment: {type(env).__name__}.reset returns {text[:60]!r}, which no player reads. Return nothing there, and this text "
            "from get_state_description."
        )


def step_of(env: BaseEnvironment, text: str) -> tuple[str, bool, dict[str, Any]]:
    """Plays an action. Raises ConfigError if `step` returns anything but an observation, whether the game is over, and its info."""
    returned = env.step(text)
    if not (isinstance(returned, tuple) and list(map(type, returned))[::2] == [str, dict] and len(returned) == 3):
        raise ConfigError(
            f"environment: {type(env).__name__}.step returned {str(returned)[:60]}. Return (observation, done, info): a text, True or "
            "False, and a dict."
        )
    return returned


_OURS = "slim_rl.games."
STARTED_IN = "SLIM_RL_STARTED_IN"  # names, to processes elsewhere, the folder that the run was started in


@cache
def environment_class(path: str) -> type[BaseEnvironment]:
    """The class of a game that the user names: importing it runs its code. What data names is asked of `game_of`.

    Raises ConfigError if there is no such environment.
    """
    found = load_object(path, "environment", "examples.secret_number.SecretNumber")
    if not _is_game(found):
        raise ConfigError(
            f"environment: {path} is not a subclass of slim_rl.environment.BaseEnvironment; name one that is."
        )
    check_methods(found, f"environment: {path}")
    return found  # type: ignore[no-any-return]


def game_of(path: str) -> type[BaseEnvironment] | None:
    """The class of a game that a log, or other data, names. Data imports nothing of a user's: the game is one of ours, or one that
    this program has imported already, for a config or for `--game`. None for any other.
    """
    if is_ours(path):
        with suppress(ConfigError):
            return environment_class(path)
    module, _, name = path.rpartition(".")
    found: Any = getattr(sys.modules.get(module), "__dict__", {}).get(name)
    return found if _is_game(found) else None


def is_ours(path: str) -> bool:
    """Whether a game comes with slim_rl, so that a log may name it."""
    return path.startswith(_OURS)


def _is_game(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, BaseEnvironment)


def load_object(path: str, key: str, example: str) -> Any:
    """What a dotted path of the user's names. Raises ConfigError, naming the config's `key`, if it cannot be imported."""
    module, _, name = path.rpartition(".")
    # The user's folders, here and where the run was started; then ours, for `examples.` where there is no such folder here.
    for folder in (str(Path.cwd()), os.environ.get(STARTED_IN, ""), str(bundled.ROOT)):
        if folder and folder not in sys.path and not path.startswith("slim_rl."):
            sys.path.append(folder)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{key}: {path} cannot be imported ({error}); give a dotted path such as {example}, with its folder on PYTHONPATH."
        ) from error
