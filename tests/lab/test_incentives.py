"""What a config pays is said before it is trained on, and every config that comes with slim_rl pays for asking."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.treasure import Compass, Treasure
from slim_rl.commands.doctor import check_asking
from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.games_file import deal
from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import Turn
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.environment import MATCHING, View
from slim_rl.errors import ConfigError, SlimError
from slim_rl.games.matching import MatchingEnv
from slim_rl.games.matching.partners.chat import MatchingChatPartner
from slim_rl.games.matching.partners.scripted import ShyPartner
from slim_rl.lab.frontier import Frontier
from slim_rl.lab.incentives import TOLERANCE, Incentives, PlayerResult, measure
from slim_rl.measured import measured
from slim_rl.statistics import Estimate
from tests.fakes.openai_server import OpenAIServer
from tests.paths import ROOT

# One of each game and partner that is shipped: its games, and the configs alike
SHIPPED: dict[str, tuple[int, tuple[str, ...]]] = {
    "matching_offline": (400, ("matching", "verl_ppo", "verl_selfplay")),
    "matching_1gpu": (200, ()),
    "matching_local": (150, ("matching_selfplay_local",)),
    "asking_local": (150, ()),
    "smollm2_local": (400, ()),
    "qwen_local": (150, ()),
}
DIALOP = {
    "game": {"hardness": 1.25, "p_observed": 0.4, "scales": True, "max_proposals": None},
    "partner": {"kind": "shy"},
}


def config_of(name: str) -> Config:
    return load_config(ROOT / "configs" / f"{name}.yaml")


def room(config: Config) -> int:
    """The questions that a game's turns leave room for, beside a plan and its acceptance."""
    return (int(config.game.max_turns) - 2) // 2


def played(config: Config) -> tuple[Any, ...]:
    """All that incentives depend on."""
    game, partner = config.game.model_dump(exclude={"rules", "max_errors"}), config.partner
    return game, partner.args.get("accept_fraction")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_config_rewards_only_asking(name: str) -> None:
    """The first and the second question pay for sure, those after them up to the eighth, or the last that there is room for, add more
    than their standard error, and no player who asks nothing earns more than one honest solo plan."""
    config = config_of(name)
    numbers = sorted({1, 2, min(4, room(config)), min(8, room(config))})
    asked = measure(config, SHIPPED[name][0], tuple(numbers), everyone=False)
    gains = [line.gain for line in asked.curve[1:]]
    assert len(gains) == len(numbers)
    assert all(gain is not None and gain.value > (gain.high - gain.low) / 4 for gain in gains), gains
    assert all(gain is not None and gain.low > 0 for gain in gains[:2]), gains[:2]
    assert asked.best_without.reward.value <= asked.lines[0].reward.value + TOLERANCE
    assert asked.rewards_asking


def test_the_asking_recipe_pays_for_asking_and_for_choosing() -> None:
    """On paper, at its own price, with as many questions as its turns leave room for."""
    config = config_of("asking_local")
    most, price = room(config), make_training_reward(config).question_price
    games = [(row.game_state, row.seat) for row in deal(config, "train", 300)]
    nets = {k: Frontier(*curve).net(most, price) for k, curve in measured(MatchingEnv).frontier(games, most).items()}
    never = Frontier(*measured(MatchingEnv).frontier(games, most)["random"]).net(0, price)
    assert most == 4 and (nets["random"] - never).mean() > 0.03
    chosen = nets["greedy"] - nets["random"]
    assert chosen.mean() - 2 * chosen.std() / 300**0.5 > 0.02


def test_configs_alike() -> None:
    names = [path.stem for path in (ROOT / "configs").glob("*.yaml")]
    # another game's tests hold its own to it
    files = {name for name in names if config_of(name).environment == MATCHING}
    assert files == {*SHIPPED, *(other for _, others in SHIPPED.values() for other in others)}
    for name, (_, others) in SHIPPED.items():
        assert [other for other in others if played(config_of(other)) != played(config_of(name))] == []


def test_games_of_a_file_of_ones_own_are_those_played(tmp_path: Path) -> None:
    config, file = config_of("matching_offline"), tmp_path / "games.jsonl"
    file.write_text("".join(f"{json.dumps(row.game_state)}\n" for row in deal(config, "train", 3)))
    own = measure(config.changed(data={"train": str(file)}), 5, (1,), everyone=False)
    assert {line.reward.n for line in own.lines} == {3}


@pytest.fixture(scope="module")
def by_dialop() -> Incentives:
    return measure(parse_config(DIALOP), 70, (1, 4))


def test_dialops_own_rules_pay_for_trying_plans(by_dialop: Incentives) -> None:
    best = by_dialop.best_without
    assert not by_dialop.rewards_asking and best.questions == 0 and ("one by one" in best.name or "doubts" in best.name)
    assert best.reward.value > by_dialop.lines[0].reward.value + 0.3
    assert by_dialop.sentence.startswith("Asking raises the reward, but is not needed: one random question")
    assert f"({best.name}: " in by_dialop.sentence


@pytest.mark.parametrize(("least", "pays"), [(-0.02, True), (0.01, False)])
def test_luck_is_no_way_around_asking(least: float, pays: bool) -> None:
    """Where a game is won or lost, one of several players without a question earns 0.05 more by luck alone."""

    def line(name: str, questions: int, curve: str, reward: float, gain: float, low: float) -> PlayerResult:
        known = Estimate(reward, reward - 0.1, reward + 0.1, 99, 99)
        return PlayerResult(name, questions, curve, "", 0, known, 0.0, Estimate(gain, low, 2 * gain - low, 99, 99))

    asked = line("1 random question", 1, "random", 0.3, 0.2, 0.1)
    guess, other = line("a guess", 0, "random", 0.1, 0.0, 0.0), line("other", 0, "", 0.15, 0.05, least)
    found = Incentives((guess, asked, other), "shy")
    assert found.rewards_asking is pays and (found.best_without is guess) is pays


def test_cheats_are_compared_with_honest_players(by_dialop: Incentives) -> None:
    cheats = [line for line in by_dialop.lines if line.against]
    names = {line.name for line in by_dialop.lines}
    assert len(cheats) >= 6 and all(line.against in names for line in cheats)
    assert all(line.learned is not None and line.reward.n == 70 for line in by_dialop.lines)
    asker = next(line for line in by_dialop.lines if line.name == "4 random questions")
    assert asker.learned is not None and 0.5 < asker.learned <= 4


STOOD_IN = """
{kind: openai} => shy (in place of openai)
{mixture: {mute: 3, gpt: {share: 1, kind: openai}, cheap: {share: 0, kind: rephrased}}} => mute 100% (without gpt)
{kind: self} => shy (in place of self)
"""


@pytest.mark.parametrize("line", STOOD_IN.strip().splitlines())
def test_an_endpoint_is_stood_in_for_by_the_scripted_partner(line: str) -> None:
    partner, _, played = line.partition(" => ")
    assert measure(parse_config({"partner": yaml.safe_load(partner)}), 3, (1,), everyone=False).partner == played


class Blank(Compass):
    """No simulated askers."""

    def frontier(self, games: Sequence[tuple[Any, int]], most: int, seed: int = 0) -> dict[str, Any]:
        return {}


class Nothing(Treasure):
    instrument = f"{__name__}.Blank"


def test_game_without_players_and_frontier_is_refused() -> None:
    config = parse_config({"environment": f"{__name__}.Nothing", "partner": {"kind": "honest"}})
    with pytest.raises(ConfigError, match="neither scripted players nor a frontier"):
        measure(config, 20)
    for other in (config, parse_config({"environment": "examples.secret_number.SecretNumber"})):
        assert not list(check_asking(other))


@pytest.mark.parametrize("pays", [True, False])
def test_doctor_says_whether_asking_pays(pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slim_rl.commands.doctor.GAMES", 120)
    game = {"n": 3, "scales": False, "p_observed": 0.2, "p_observed_2": 0.9, "hardness": 0}
    (check,) = check_asking(parse_config({"game": game if pays else {**game, "max_proposals": None}}))
    assert (check.status, check.name) == ("pass" if pays else "warn", "gain from asking")
    said = "Asking raises the reward:" if pays else "Asking raises the reward, but is not needed"
    assert check.finding.startswith(said) and ("slim-rl lab incentives" in check.fix) != pays


class Own(MatchingChatPartner):
    """A chat partner that goes by its dotted path."""


class Refused(ShyPartner):
    """A partner whose endpoint takes nothing any more."""

    stopped = "The endpoint is down."

    async def act(self, view: View) -> Turn:
        raise PartnerFailure(self.stopped)


class Slow(ShyPartner):
    """Partner with a latency, which counts the turns that wait at once."""

    waiting = most = 0

    async def act(self, view: View) -> Turn:
        Slow.waiting += 1
        Slow.most = max(Slow.most, Slow.waiting)
        await asyncio.sleep(0.01)
        Slow.waiting -= 1
        return await super().act(view)


def of_kind(name: str) -> Config:
    return parse_config({"partner": {"kind": f"{__name__}.{name}"}, "game": {"n": 3}})


def test_players_play_all_their_games_at_once() -> None:
    found = measure(of_kind("Slow"), 3, (1, 2), everyone=False)
    assert Slow.most == 3 * len(found.lines) > 3


def test_a_chat_partner_of_ones_own_is_stood_in_for() -> None:
    with OpenAIServer() as server:
        found = measure(of_kind("Own").changed(partner={"openai": {"base_url": server.url}}), 2, (1,))
        assert found.partner.startswith("shy (in place of") and not server.requests


def test_failed_partner_is_reported() -> None:
    with pytest.raises(SlimError, match="The endpoint is down"):
        measure(of_kind("Refused"), 2, (1,))


def test_of_games_that_all_failed_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Refused, "stopped", None)
    monkeypatch.setattr("slim_rl.commands.doctor.GAMES", 9)
    found = measure(of_kind("Refused"), 2, (1,))
    assert not found.rewards_asking
    assert found.sentence == "The gain from asking is unknown: no game was played to its end."
    assert not list(check_asking(of_kind("Refused")))
