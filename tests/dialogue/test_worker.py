"""What the rollout worker writes into a dialogue: the partner's kind is the name by which the run chose it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.players import Partner, make_partner
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import MutePartner, ShyPartner
from slim_rl.games.matching.state import MatchingSettings

SHY = "slim_rl.games.matching.partners.scripted.ShyPartner"
(GAME,) = generate_games(1, MatchingSettings(n=3), seed=1)


class Rude(ShyPartner):
    """Says of itself what its parent says."""


class Nameless(Partner):
    identity: ClassVar[dict[str, Any]] = {"model": "none"}

    async def act(self, view: View) -> Turn:
        return Turn("[message] Hm.")


class Rudeness(MatchingEnv):
    partners: ClassVar[Mapping[str, str]] = {**MatchingEnv.partners, "rude": f"{__name__}.Rude"}


class Broken(Partner):
    identity: ClassVar[dict[str, Any]] = {}

    async def act(self, view: View) -> Turn:
        raise RuntimeError("a fault of the policy's own")


def worker(kind: str) -> RolloutWorker:
    return RolloutWorker(parse_config({"environment": f"{__name__}.Rudeness", "partner": {"kind": kind}}), None)


def played(by: RolloutWorker, **more: Any) -> Dialogue:
    row = GameRow(GAME.id, 0, GAME.to_dict(), [])
    (dialogue,) = asyncio.run(by.play(by.spec(row, "test"), **({"policy": MutePartner()} | more)))
    return dialogue


@pytest.mark.parametrize(
    ("kind", "logged"),
    [
        ("shy", "shy"),
        ("rude", "rude"),
        (SHY, SHY),
        (f"{__name__}.Rude", f"{__name__}.Rude"),
        (f"{__name__}.Nameless", f"{__name__}.Nameless"),
    ],
)
def test_a_partner_is_logged_by_the_name_it_was_chosen_by(kind: str, logged: str) -> None:
    by = worker(kind)
    partner = make_partner(by.config)
    assert partner is not None and played(by).partner == {**partner.identity, "kind": logged}
    broken = played(by, policy=Broken())
    assert broken.stop_reason is StopReason.BROKEN and broken.partner["kind"] == logged


def test_dialogues_of_a_group_draw_apart_and_the_same_again() -> None:
    by, row = worker("shy"), GameRow(GAME.id, 0, GAME.to_dict(), [])
    specs = [by.spec(row, scope, number) for scope in ("0", "1") for number in (0, 1)]
    assert len({spec.seed for spec in specs}) == len({spec.id for spec in specs}) == 4
    assert [spec.group for spec in specs] == [f"{scope}/{row.name}" for scope in "0011"]
    assert specs == [worker("shy").spec(row, scope, number) for scope in ("0", "1") for number in (0, 1)]


def test_another_partner_than_the_runs_keeps_its_own_name() -> None:
    alone = RolloutWorker(parse_config({"partner": {"kind": "forthcoming"}}), None, partner=ShyPartner())
    assert played(alone).partner["kind"] == "shy"


def test_drawn_question_cost_reaches_policy_and_log_only() -> None:
    class Reader(MutePartner):
        read: ClassVar[list[str]] = []

        async def act(self, view: View) -> Turn:
            self.read.append(view.state)
            return await super().act(view)

    def dialogue(price: str) -> Dialogue:
        config = parse_config(
            {"partner": {"kind": f"{__name__}.Rude"}}, [f"train={{reward: price, reward_args: {{price: {price}}}}}"]
        )
        return played(RolloutWorker(config, None), policy=Reader())

    told = dialogue("[0.004]")
    assert told.price == 0.004
    assert told.prompt[-1]["content"].endswith("\nEach question costs 0.4% of the highest reward.")
    assert Reader.read and all(state.endswith("0.4% of the highest reward.") for state in Reader.read)
    assert Dialogue.from_dict(told.to_dict()).price == 0.004
    silent = dialogue("0.004")
    assert silent.price is None and "costs" not in silent.prompt[-1]["content"]
