"""The matching game's settings: the `game` section of a config, and `warmstart.player`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, NonNegativeFloat, model_validator

from slim_rl.config import Section
from slim_rl.games.matching.roster import PAPERS, REVIEWERS

KINDS: Mapping[Literal["pair", "open", "tell"], float] = {"pair": 0.70, "open": 0.15, "tell": 0.15}


class MatchingSettings(Section):
    """The matching game (DialOp "optimization")."""

    n: int = Field(8, ge=2)
    """reviewers and papers; above 8 give `reviewers` and `papers`"""
    sizes: tuple[int, ...] = ()
    """boards of mixed sizes: for each game n is drawn from this list; empty: always `n`"""
    names: Literal["first", "random"] = "first"
    """which names of reviewers and papers a game uses; first: the first n; random: any n in any order, drawn for each
    game"""
    p_observed: float = Field(0.4, gt=0, le=1)
    """chance that a player sees a cell, independently of the others"""
    p_observed_2: float | None = Field(None, gt=0, le=1)
    """chance that the player in seat 1 sees a cell; null: p_observed"""
    scales: bool = True
    """each player is shown int(score * U(1,10)), and does not know the other's factor"""
    hardness: float = Field(1.25, ge=0)
    """minimum ratio of the best joint plan to either player's best plan alone, for a game to be kept; 0: all are kept"""
    max_turns: int = Field(20, ge=1)
    """valid actions of both players together; after that the game ends with reward 0"""
    max_errors: int = Field(3, ge=1)
    """malformed actions in a row that end the game"""
    max_proposals: int | None = Field(1, ge=1)
    """plans that each player may propose; if the last is rejected the game ends, reward 0; null: any number, as in
    DialOp, where trying plans one by one can replace asking"""
    reviewers: tuple[str, ...] | None = None
    """custom names; null: the first n of DialOp's"""
    papers: tuple[str, ...] | None = None
    """custom titles; the short title is the part before the colon; null: DialOp's"""
    planner: Literal["player", "solver"] = "player"
    """author of plans; player: the player writes them; solver: `[propose]` alone proposes the best plan by what the player
    knows, and a plan that it writes out is used as written"""
    show_known: bool | Literal["plan"] = False
    """show a player its table before each of its turns; it has the scores that it received, and "-" for no answer; plan: "*"
    also marks the best plan by that table"""
    rules: Literal["full", "short", "none"] = "full"
    """rules in the policy's prompt; full: all; short: aim and actions, about 40 tokens, and the table as a list; none: for a
    model that knows them by demonstrations"""
    open_book: bool = False
    """players also see the other's scores, so there is nothing to ask (control); partners and measures still follow the
    original masks"""

    @model_validator(mode="after")
    def _names_enough(self) -> MatchingSettings:
        if any(size < 2 for size in self.sizes):
            raise ValueError(f"game.sizes is {list(self.sizes)}: every board has 2 reviewers or more")
        where, most = ("game.sizes", self.largest) if self.sizes else ("game.n", self.n)
        for field, default in (("reviewers", REVIEWERS), ("papers", PAPERS)):
            names = getattr(self, field)
            if names is None and most > len(default):
                raise ValueError(
                    f"{where} is {most} but DialOp's roster has {len(default)} names: list your own in game.{field}"
                )
            if names is not None and len(names) < most:
                raise ValueError(f"game.{field} has {len(names)} names for n = {most}: list at least that many")
        return self

    @property
    def largest(self) -> int:
        """Returns the maximum number of reviewers of a game."""
        return max(self.sizes, default=self.n)


class PlayerSettings(Section):
    """Settings of the matching game's scripted player, which plays the demonstrations."""

    kinds: dict[Literal["pair", "open", "tell"], NonNegativeFloat] = Field(dict(KINDS), min_length=1)
    """kinds of message; pair: a question about a pair that is not seen; open: about more; tell: states a score"""
    ask_about_plan_share: float = Field(0.0, ge=0, le=1)
    """share of its games in which its questions are about pairs of its best plan so far"""
    cost_aware_share: float = Field(0.0, ge=0, le=1)
    """share of its games in which it asks only while the best question is worth more than the question cost in its prompt"""
    thinks: Literal["plan", "turn", "never"] = "plan"
    """turns before which it writes its table as a thought; plan: before a plan that it computes; turn: before every turn;
    never: before none, for a game that shows it the best plan"""

    @model_validator(mode="after")
    def _some_kind_is_said(self) -> PlayerSettings:
        if not sum(self.kinds.values()) > 0:
            raise ValueError("warmstart.player.kinds are shares that are all 0: raise one of them")
        return self
