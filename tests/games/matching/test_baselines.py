"""The scripted policies that others are set against: floor below ceiling, and a ceiling as high as the ideal asker on paper."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slim_rl.config import Limits
from slim_rl.dialogue.loop import play_dialogue
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.environment import View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import ShyPartner
from slim_rl.games.matching.questions.value import frontier as arrays
from slim_rl.games.matching.state import MatchingSettings
from slim_rl.games.matching.study.players import baselines
from slim_rl.lab.frontier import Frontier

SMALL = MatchingSettings(n=3, p_observed=0.2, p_observed_2=0.9, hardness=0, scales=False)
SHY = ShyPartner(accept_fraction=0)
GAMES = list(generate_games(60, SMALL, seed=5))


def frontier(*arguments: Any) -> Frontier:
    """One asker's, as the lab reads it."""
    return Frontier(*arrays(*arguments))


def play(player: Any, seat: int = 0, max_turns: int = 24, partner: Any = SHY) -> list[Dialogue]:
    async def one(number: int) -> Dialogue:
        env = MatchingEnv(max_turns=max_turns)
        return await play_dialogue(
            env, player, partner, None, Limits(), game_state=GAMES[number], id="a", seat=seat, seed=number
        )

    async def everything() -> list[Dialogue]:
        return [await one(number) for number in range(len(GAMES))]

    return asyncio.run(everything())


class Terse(ShyPartner):
    """Leaves out the names where it tells a score."""

    async def act(self, view: View) -> Turn:
        said = await super().act(view)
        score = re.search(r": (\d+)\.$", said.text)
        return replace(said, text=f"[message] {score[1]}.") if score else said


@pytest.mark.parametrize("name", ["forced:3", "greedy:3", "ideal"])
def test_score_without_names_helps_as_much_as_with_names(name: str) -> None:
    player = baselines(SMALL, 0.0, 3)[name]
    terse, plain = play(player, partner=Terse(accept_fraction=0)), play(player)
    assert any(turn.text.removeprefix("[message] ").strip(".").isdigit() for turn in terse[0].turns)
    assert [dialogue.reward for dialogue in terse] == [dialogue.reward for dialogue in plain]


def asked(dialogue: Dialogue) -> int:
    return sum(turn.role == "policy" and turn.text.startswith("[message]") for turn in dialogue.turns)


@pytest.mark.parametrize("price", [0.0, 0.02])
def test_ideal_policy_reward_equals_simulated_ideal_asker(price: float) -> None:
    paper = Frontier(*frontier(GAMES, [0] * len(GAMES), 9))
    played = play(baselines(SMALL, price)["ideal"])
    questions = np.array([asked(dialogue) for dialogue in played])
    net = np.array([dialogue.reward for dialogue in played], dtype=float) - price * questions
    assert net.mean() == pytest.approx(paper.net(paper.stops(price), price).mean(), abs=0.02)
    assert price or np.mean([dialogue.reward for dialogue in played]) > 0.99


def test_it_asks_less_where_a_question_costs_more() -> None:
    numbers = [np.mean([asked(d) for d in play(baselines(SMALL, price)["ideal"])]) for price in (0.0, 0.02, 0.05, 1.0)]
    assert numbers == sorted(numbers, reverse=True) and numbers[0] > 4 > numbers[2] > numbers[3] == 0


def test_floor_and_ceiling_are_in_order() -> None:
    found = {name: np.mean([d.reward for d in play(player)]) for name, player in baselines(SMALL, 0.0, 3).items()}
    assert found["random"] < found["solo"] < found["forced:3"] < found["ideal"]
    assert found["greedy:3"] < found["ideal"]


def test_each_asks_as_often_as_its_name_says_from_either_seat() -> None:
    for name, number in (("solo", 0), ("random", 0), ("forced:2", 2), ("greedy:2", 2)):
        for seat in (0, 1):
            unseen = [9 - int(np.sum(game.mask(seat))) for game in GAMES]
            played = play(baselines(SMALL, 0.0, 2)[name], seat)
            assert [asked(dialogue) for dialogue in played] == [min(number, there) for there in unseen]


def test_they_leave_themselves_the_turns_to_propose() -> None:
    played = play(baselines(SMALL, 0.0, 9)["forced:9"], max_turns=7)
    assert {dialogue.stop_reason for dialogue in played} == {"agreed"} and max(map(asked, played)) == 2
