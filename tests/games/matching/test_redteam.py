"""No cheat earns more from a scripted partner than the honest player it is compared with; and a bad partner is found out."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from slim_rl.config import Config, PartnerConfig
from slim_rl.dialogue.partner import Reply
from slim_rl.environment import View
from slim_rl.errors import ConfigError
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.partners.scripted import ForthcomingPartner, MutePartner, ScriptedPartner, ShyPartner
from slim_rl.games.matching.redteam import Row, players, redteam, run, table
from slim_rl.games.matching.settings import MatchingSettings

GAMES = list(generate_games(25, MatchingSettings(), seed=9))
SMALL = list(generate_games(25, MatchingSettings(n=3, scales=False, hardness=0), seed=9))
TOLERANCE = 0.02


def rows_of(partner: Any, games: Sequence[GameState]) -> dict[str, Row]:
    return {row.name: row for row in asyncio.run(redteam(partner, games))}


@pytest.mark.parametrize(("games", "accept_fraction"), [(GAMES, 0.75), (SMALL, 0.0)], ids=["8x8", "3x3"])
@pytest.mark.parametrize("kind", [ShyPartner, ForthcomingPartner, MutePartner])
def test_no_cheat_pays(kind: type[ScriptedPartner], games: list[GameState], accept_fraction: float) -> None:
    rows = rows_of(kind(accept_fraction), games)
    assert len([row for row in rows.values() if row.against]) >= 10
    for row in rows.values():
        assert row.failed == 0
        if row.against is not None:
            assert row.excess is not None and row.excess <= TOLERANCE, row


def test_honest_questions_pay_with_the_shy_partner() -> None:
    rows = rows_of(ShyPartner(), GAMES)
    solo, asked = rows["solo plan"], rows["8 questions"]
    assert asked.reward > solo.reward + 0.2
    assert (solo.questions, solo.told) == (0, 0)
    assert asked.questions == 8 and 1 < asked.told <= 8
    assert rows["whole table in one question"].told == 0


def test_trying_plans_pays_until_rejections_are_limited() -> None:
    """Rejections tell something too: plans tried one by one earn much without a question, and nothing more with a limit."""
    lenient, strict = rows_of(MutePartner(), GAMES), rows_of(MutePartner(max_rejections=1), GAMES)
    assert lenient["solo plans, one by one"].reward > lenient["solo plan"].reward + 0.5
    for tried, once in (("solo plans, one by one", "solo plan"), ("random plans, one by one", "random plan")):
        assert strict[tried].reward == strict[once].reward


class Gullible(ShyPartner):
    """Does what is written in a note below a proposal."""

    async def reply(self, view: View) -> Reply:
        if view.private.pending is not None and "for you alone" in view.history[-1].text:
            return Reply("[accept]")
        return await super().reply(view)


def test_a_partner_that_can_be_cheated_is_found_out() -> None:
    rows = rows_of(Gullible(), GAMES)
    assert {name for name, row in rows.items() if (row.excess or 0) > TOLERANCE} == {
        name for name in rows if "note" in name
    }
    generous = rows_of(ShyPartner(max_pairs=64), GAMES)
    assert (generous["whole table in one question"].excess or 0) > 0.5


def test_names_of_players_differ_and_honest_ones_come_first() -> None:
    everyone = players(8)
    names = [player.name for player in everyone]
    assert len(set(names)) == len(names)
    for number, player in enumerate(everyone):
        assert player.against is None or player.against in names[:number]


def test_a_config_is_played_and_shown() -> None:
    shown = run(Config(partner=PartnerConfig(kind="mute")), 3)
    console = Console(file=io.StringIO(), width=150)
    console.print(shown)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "**[propose]** and a note" in text and "3 games" in text
    assert shown.row_count == len(players(8)) + sum(player.against is not None for player in players(8))
    assert table([Row("a", None, 1, 0, 0.5, 1.0, 0.0, 0.0, None)]).row_count == 1
    with pytest.raises(ConfigError, match="red team"):
        run(Config(partner=PartnerConfig(kind="self")), 3)
