"""The matching game's settings: the `game` section of a config."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from slim_rl.config import Section
from slim_rl.games.matching.roster import PAPERS, REVIEWERS


class MatchingSettings(Section):
    """The matching game (DialOp "optimization")."""

    n: int = Field(8, ge=2, description="reviewers and papers; above 8 give `reviewers` and `papers`")
    p_observed: float = Field(0.4, gt=0, le=1, description="chance that a player sees a cell, independently")
    p_observed_2: float | None = Field(None, gt=0, le=1, description="that of seat 1, where it differs")
    scales: bool = Field(True, description="show each player int(score * U(1,10)) instead of the score")
    hardness: float = Field(
        1.25, ge=0, description="keep games whose pooled optimum is over this many times either solo plan; 0: all"
    )
    max_turns: int = Field(20, ge=1, description="valid actions of both players together")
    max_errors: int = Field(3, ge=1, description="malformed actions in a row that end the game")
    max_proposals: int | None = Field(
        1,
        ge=1,
        description="plans that each player may propose; if the last is rejected the game ends, reward 0; null: any number, as in DialOp, "
        "where trying plans one by one stands in for asking",
    )
    reviewers: tuple[str, ...] | None = Field(None, description="names; the first n of DialOp's roster if not given")
    papers: tuple[str, ...] | None = Field(None, description="titles; a short title is what stands before the colon")
    rules: Literal["full", "none"] = Field(
        "full", description="whether the policy is told the rules; none for one that was taught them by demonstrations"
    )
    open_book: bool = Field(
        False,
        description="the tables that players read hold the other's scores too, so that there is nothing to ask (control); scripted "
        "partners, and what is measured of questions, go by the deal as without it",
    )

    @model_validator(mode="after")
    def _names_enough(self) -> MatchingSettings:
        for field, default in (("reviewers", REVIEWERS), ("papers", PAPERS)):
            names = getattr(self, field)
            if names is None and self.n > len(default):
                raise ValueError(
                    f"game.n is {self.n} but DialOp's roster has {len(default)} names: list your own in game.{field}"
                )
            if names is not None and len(names) < self.n:
                raise ValueError(f"game.{field} has {len(names)} names for n = {self.n}: list at least that many")
        return self
