"""The matching game for two seats that take turns strictly; seat 0 speaks first.

Everything that happens follows from the game state and the texts given to `step`, so a game is repeated exactly by
stepping through its record. A malformed action leaves the turn with its author; an answer to a proposal passes it on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from slim_rl.environment import BaseEnvironment, Board, NoObservation
from slim_rl.errors import DataError
from slim_rl.games.matching import prompt
from slim_rl.games.matching.actions import Action, ActionError, parse_action
from slim_rl.games.matching.prompt import BULLET, KNOWN, RESPOND, Shown, has_scales, state_description
from slim_rl.games.matching.state import (
    Assignment,
    GameState,
    MatchingSettings,
    MatchingView,
    PlayerSettings,
    best_assignment,
)

if TYPE_CHECKING:
    from slim_rl.games.matching.study.aided import Learned

_EVAL_START = 2**31  # eval games are numbered from here on, and stay the same however many there are to train on


@dataclass(eq=False)
class MatchingEnv(BaseEnvironment):
    """DialOp's "optimization" game.

    Args:
        max_turns, max_errors, max_proposals, planner, show_known, rules, open_book: as in `MatchingSettings`.
    """

    seats = 2
    tags: ClassVar[tuple[str, ...]] = ("message", "propose", "accept", "reject")
    undealt: ClassVar[tuple[str, ...]] = ("max_errors", "open_book", "planner", "show_known")
    Settings = MatchingSettings
    PlayerSettings = PlayerSettings
    instrument = "slim_rl.games.matching.study.MatchingInstrument"
    partners: ClassVar[Mapping[str, str]] = {
        "shy": "slim_rl.games.matching.partners.scripted.ShyPartner",
        "forthcoming": "slim_rl.games.matching.partners.scripted.ForthcomingPartner",
        "mute": "slim_rl.games.matching.partners.scripted.MutePartner",
        "erring": "slim_rl.games.matching.study.controls.ErringPartner",
        "rephrased": "slim_rl.games.matching.study.controls.RephrasedPartner",
        "yoked": "slim_rl.games.matching.study.controls.YokedPartner",
        "openai": "slim_rl.games.matching.partners.chat.MatchingChatPartner",
    }

    max_turns: int = 20
    max_errors: int = 3
    max_proposals: int | None = 1
    planner: Literal["player", "solver"] = "player"
    show_known: bool | Literal["plan"] = False
    rules: Literal["full", "short", "none"] = "full"
    open_book: bool = False

    def __post_init__(self) -> None:
        self._game: GameState | None = None
        self._clear()

    def _clear(self) -> None:
        self.turn = 0
        self.turns_taken = 0
        self.errors = 0  # in a row
        self.pending: Assignment | None = None
        self.accepted: Assignment | None = None
        self.end: str | None = None
        self._said: list[tuple[int, str]] = []  # valid actions, each with its seat
        self._proposed = [0, 0]  # plans of each seat

    @property
    def game(self) -> GameState:
        """Returns the current game. Raises RuntimeError before the first `reset`."""
        if self._game is None:
            raise RuntimeError("No game has been dealt: call reset(game_state) first.")
        return self._game

    def reset(self, game_state: GameState | Mapping[str, Any] | None = None) -> NoObservation:
        """Deals a game. Raises DataError for a malformed state, or none."""
        if game_state is None:
            raise DataError("reset needs a game_state: a GameState or its dict.")
        self._game = game_state if isinstance(game_state, GameState) else GameState.from_dict(game_state)
        self._clear()
        return NoObservation()

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        author = self.turn
        info: dict[str, Any] = {"seat": author, "action": None, "error": None}
        if self.end is not None:
            info |= {"error": "The game is over.", "end": self.end}
            return "The game is over.", True, info
        action = self._read(text)
        if isinstance(action, ActionError):
            observation = f"Error: {action.message}"
            info["error"] = action.message
            self.errors += 1
            if self.errors >= self.max_errors:
                self.end = "errors"
        else:
            self._said.append((author, text))
            observation = self._take(action)
            info["action"] = {"kind": action.kind, "text": action.text}
            if action.assignment is not None:
                info["action"]["assignment"] = list(action.assignment)
        if self.end is not None:
            info["end"] = self.end
        elif self.show_known:
            known, roster = self._learned(self.turn), self.game.roster
            lines = known.lines(self._shown(self.turn), roster, not has_scales(self.game), self._plan_shown(self.turn))
            observation = "\n".join((observation, KNOWN, *lines))
        return observation, self.end is not None, info

    def _read(self, text: str) -> Action | ActionError:
        plan = partial(self._best_plan, self.turn) if self.planner == "solver" else None
        return parse_action(text, self.game.roster, must_respond=self.pending is not None, plan=plan)

    def _best_plan(self, seat: int) -> Assignment:
        """Returns the best plan by what the seat sees and learned."""
        return best_assignment(self._learned(seat).expected(self._shown(seat), self.game.scale(seat)))[0]

    def _take(self, action: Action) -> str:
        """Plays a valid action; returns how the other seat reads it."""
        self.errors = 0
        self.turns_taken += 1
        self._proposed[self.turn] += action.kind == "propose"
        self.turn = 1 - self.turn
        if action.kind == "accept":
            self.accepted = self.pending
            self.end = "agreed"
        elif action.kind == "reject" and self._proposals_left(self.turn) == 0:
            self.end = "rejected"
        elif self.turns_taken >= self.max_turns:
            self.end = "max_turns"
        self.pending = action.assignment  # None unless this is a proposal: an answer has just settled the last one
        if action.kind == "propose":
            return f"[propose]\n{action.text}\n{RESPOND}"
        return f"[{action.kind}] {action.text}".rstrip()

    def get_normalized_reward(self) -> float:
        """Returns the accepted plan's score over the best; 0 without one."""
        if self.accepted is None:
            return 0.0
        return self.game.score(self.accepted) / self.game.best_assignment_reward

    def get_prompt_prefix(self, seat: int = 0) -> str:
        return prompt.rules("full", self)

    def prompt(self, seat: int = 0) -> list[dict[str, str]]:
        if self.rules != "short":
            return super().prompt(seat)
        rules, state = super().prompt(seat)
        return [rules | {"content": prompt.rules("short", self)}, state | {"content": self._described(seat, BULLET)}]

    def get_state_description(self, seat: int = 0) -> str:
        return self._described(seat)

    def _described(self, seat: int, bullet: str = "") -> str:
        return state_description(self.game.roster, seat, self._shown(seat), self._plan_shown(seat), bullet)

    def get_private_view(self, seat: int) -> MatchingView:
        return MatchingView(
            seat=seat,
            roster=self.game.roster,
            table=self.game.displayed(seat),
            scale=self.game.scale(seat),
            pending=self.pending if seat == self.turn else None,
            turns_left=self.max_turns - self.turns_taken,
            proposals_left=self._proposals_left(seat),
            solver=self.planner == "solver",
        )

    def _proposals_left(self, seat: int) -> int | None:
        return None if self.max_proposals is None else self.max_proposals - self._proposed[seat]

    @classmethod
    def deal(
        cls, game: MatchingSettings, seed: int, split: str, numbers: range, workers: int = 1
    ) -> Iterator[tuple[str, GameState]]:
        from slim_rl.games.matching.generate import generate_games  # which no dialogue needs

        start = numbers.start + (_EVAL_START if split == "eval" else 0)
        for state in generate_games(len(numbers), game, seed, workers, start):
            yield state.id, state

    def solution(self) -> dict[str, Any]:
        """Returns ``ground_truth``, an optimal assignment, and ``optimal_score``."""
        return {"ground_truth": list(self.game.best()), "optimal_score": self.game.best_assignment_reward}

    def board(self, seat: int | None) -> Board:
        game, roster = self.game, self.game.roster
        values = game.table if seat is None else self.known(seat)
        cells = tuple(tuple("?" if value is None else f"{value:g}" for value in row) for row in values)
        title = "true scores, the best plan marked" if seat is None else "your scores"
        best = frozenset(enumerate(game.best())) if seat is None else frozenset()
        return Board(title, roster.reviewers, roster.short_papers, cells, best)

    def known(self, seat: int) -> Sequence[Sequence[float | None]]:
        """Returns the scores that `seat` sees, or else learned if both play on one scale; None where it has none."""
        shown = self._shown(seat)
        return shown if has_scales(self.game) else self._learned(seat).fill(shown)

    def _shown(self, seat: int) -> Shown:
        """Returns the table that a seat reads.

        With an open book its private view, by which scripted partners answer and judge, and the recorded deal, by which questions are measured,
        stay as they are: arms with and without it are counted alike.
        """
        game = self.game
        return game.pooled(game.scale(seat)) if self.open_book else game.displayed(seat)

    def _learned(self, seat: int) -> Learned:
        from slim_rl.games.matching.study.aided import learned  # the reader of English, which a bare game does without

        return learned(seat, self.game.roster, tuple(self._said))

    def _plan_shown(self, seat: int) -> Assignment | None:
        return self._best_plan(seat) if self.show_known == "plan" else None
