"""Partner of each dialogue, by a kind or drawn from a mixture, and what the rollout worker writes of it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
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
from slim_rl.games.matching.partners.scripted import VERSION, MutePartner, ShyPartner
from slim_rl.games.matching.state import MatchingSettings
from tests.dialogue.players import Says

SHY = "slim_rl.games.matching.partners.scripted.ShyPartner"
(GAME,) = generate_games(1, MatchingSettings(n=3), seed=1)


class Rude(ShyPartner):
    """Says of itself what its parent says."""


@dataclass
class Grown(ShyPartner):
    """Has a setting that partners of earlier runs lack."""

    patience: int = 1


class Spent(ShyPartner):
    stopped = "the budget is spent"


class Nameless(Partner):
    identity: ClassVar[dict[str, Any]] = {"model": "none"}

    async def act(self, view: View) -> Turn:
        return Turn("[message] Hm.")


class Rudeness(MatchingEnv):
    partners: ClassVar[Mapping[str, str]] = {**MatchingEnv.partners, "rude": f"{__name__}.Rude"}


BROKEN = Says(lambda view: str(1 / 0))  # a fault of the policy's own


def worker(kind: str) -> RolloutWorker:
    return RolloutWorker(parse_config({"environment": f"{__name__}.Rudeness", "partner": {"kind": kind}}), None)


def played(by: RolloutWorker, **more: Any) -> Dialogue:
    row = GameRow(GAME.id, 0, GAME.to_dict(), [])
    (dialogue,) = asyncio.run(by.play(by.spec(row, "test"), **({"policy": MutePartner()} | more)))
    return dialogue


@pytest.mark.parametrize("kind", ["shy", "rude", SHY, f"{__name__}.Rude", f"{__name__}.Nameless"])
def test_a_partner_is_logged_by_the_name_it_was_chosen_by(kind: str) -> None:
    by = worker(kind)
    partner = make_partner(by.config)
    assert partner is not None and played(by).partner == {**partner.identity, "kind": kind}
    broken = played(by, policy=BROKEN)
    assert broken.stop_reason is StopReason.BROKEN and broken.partner["kind"] == kind


def test_dialogues_of_a_group_draw_apart_and_the_same_again() -> None:
    by, row = worker("shy"), GameRow(GAME.id, 0, GAME.to_dict(), [])
    specs = [by.spec(row, scope, number) for scope in ("0", "1") for number in (0, 1)]
    assert len({spec.seed for spec in specs}) == len({spec.id for spec in specs}) == 4
    assert [spec.group for spec in specs] == [f"{scope}/{row.name}" for scope in "0011"]
    assert specs == [worker("shy").spec(row, scope, number) for scope in ("0", "1") for number in (0, 1)]


MIXTURE = {"shy": 3, "mute": {"share": 1}, "lying": {"share": 1, "kind": "erring", "args": {"errs": 1.0}}}


def mixed(seed: int = 0, **mixture: Any) -> RolloutWorker:
    settings = {"seed": seed, "partner": {"kind": "forthcoming", "mixture": mixture or MIXTURE}}
    return RolloutWorker(parse_config(settings), None)


def names(by: RolloutWorker, games: int = 400, **more: Any) -> list[str]:
    """Returns the partner's name in each game."""
    return [by.member_of(by.spec(GameRow(f"g{number}", 0, {}, []), "0", **more)) for number in range(games)]


def test_mixture_games_have_one_partner_each_by_seed() -> None:
    drawn = names(mixed())
    assert [drawn.count(name) / len(drawn) for name in MIXTURE] == pytest.approx([0.6, 0.2, 0.2], abs=0.06)
    again = names(mixed(**dict(reversed(MIXTURE.items()))), number=7, step=3)
    assert again == drawn, "whatever dialogue of its group, step, or order in the file"
    assert names(mixed(seed=1)) != drawn


def test_mixture_member_is_logged_by_name_with_its_arguments() -> None:
    by = mixed(lying=MIXTURE["lying"])
    assert played(by).partner == {"kind": "lying", "version": VERSION, "errs": 1.0}
    broken = played(by, policy=BROKEN)
    assert broken.stop_reason is StopReason.BROKEN and broken.partner["kind"] == "lying"


def test_mixture_takes_no_more_games_once_a_member_does() -> None:
    assert mixed(shy=1, spent={"share": 1, "kind": f"{__name__}.Spent"}).stopped == "the budget is spent"


def test_identity_of_a_partner_survives_a_new_setting() -> None:
    assert Grown().identity == ShyPartner().identity and Grown(patience=2).identity["patience"] == 2


def test_another_partner_than_the_runs_keeps_its_own_name() -> None:
    alone = RolloutWorker(parse_config({"partner": {"kind": "forthcoming"}}), None, partner=ShyPartner())
    assert played(alone).partner["kind"] == "shy"


def test_drawn_question_cost_reaches_policy_and_log_only() -> None:
    reader = Says("[message] Hm.")

    def dialogue(price: str) -> Dialogue:
        cost = f"train={{reward: price, reward_args: {{price: {price}}}}}"
        config = parse_config({"partner": {"kind": f"{__name__}.Rude"}}, [cost])
        return played(RolloutWorker(config, None), policy=reader)

    told = dialogue("[0.004]")
    assert told.price == 0.004
    assert told.prompt[-1]["content"].endswith("\nEach question costs 0.4% of the highest reward.")
    assert reader.views and all(view.state.endswith("0.4% of the highest reward.") for view in reader.views)
    assert Dialogue.from_dict(told.to_dict()).price == 0.004
    silent = dialogue("0.004")
    assert silent.price is None and "costs" not in silent.prompt[-1]["content"]
