"""Scripted players and policies: an honest one plans by all it knows, no cheat earns more than it, and a floor lies below a ceiling."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.environment import Utterance, View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import ForthcomingPartner, MutePartner, ScriptedPartner, ShyPartner
from slim_rl.games.matching.questions.value import frontier as arrays
from slim_rl.games.matching.state import GameState, MatchingSettings
from slim_rl.games.matching.study.players import Asker, Player, baselines, beliefs, scripted_players
from slim_rl.lab.frontier import Frontier
from tests.made import played

DEALT = {"p_observed": 0.2, "p_observed_2": 0.9, "hardness": 0, "scales": False}
LARGE = MatchingSettings(**DEALT)
SMALL = MatchingSettings(n=3, **DEALT)
DIALOP = MatchingSettings(max_proposals=None)
TOLERANCE = 0.02


def rewards(partner: Any, settings: MatchingSettings, names: Sequence[str] = (), games: int = 25) -> dict[str, float]:
    """The mean reward of each player on the same games."""
    found, dealt = {}, list(generate_games(games, settings, seed=9))
    for player in scripted_players(settings, (1, 4)):
        if not names or player.name in names:
            gained = [play(player.player, partner, game, settings).reward for game in dealt]
            assert None not in gained
            found[player.name] = float(np.mean(gained))
    return found


def play(player: Any, partner: Any, game: GameState, settings: MatchingSettings) -> Dialogue:
    return played(MatchingEnv(max_proposals=settings.max_proposals), player, partner, game, seed=3)


@pytest.mark.parametrize(("settings", "accept_fraction"), [(LARGE, 0.75), (SMALL, 0.0)], ids=["8x8", "3x3"])
@pytest.mark.parametrize("kind", [ShyPartner, ForthcomingPartner, MutePartner])
def test_no_cheat_pays(kind: type[ScriptedPartner], settings: MatchingSettings, accept_fraction: float) -> None:
    players = scripted_players(settings, (1, 4))
    earned = rewards(kind(accept_fraction), settings)
    cheats = [player for player in players if player.against]
    assert len(cheats) == 6
    for cheat in cheats:
        assert earned[cheat.name] <= earned[cheat.against] + TOLERANCE, cheat.name


class Gullible(ShyPartner):
    """Does what is written in a note below a proposal."""

    async def act(self, view: View) -> Turn:
        if view.private.pending is not None and "for you alone" in view.history[-1].text:
            return Turn("[accept]")
        return await super().act(view)


def test_a_partner_that_can_be_cheated_is_found_out() -> None:
    earned = rewards(Gullible(), LARGE)
    assert all(earned[name] > earned["one solo plan"] + 0.1 for name in earned if "note" in name)
    generous = rewards(ShyPartner(max_pairs=64), LARGE, ("whole table in one question", "1 random question"))
    assert generous["whole table in one question"] > generous["1 random question"] + 0.3


def test_player_names_differ_and_honest_silent_is_first() -> None:
    for settings in (LARGE, SMALL, DIALOP):
        players = scripted_players(settings, (1, 2, 8))
        names = [player.name for player in players]
        assert len(set(names)) == len(names)
        assert (players[0].questions, players[0].curve, players[0].against) == (0, "random", "")
        for number, player in enumerate(players):
            assert not player.against or player.against in names[:number]


def test_trying_plans_replaces_asking_under_dialop_rules_only() -> None:
    tried = "solo plans, one by one"
    by_dialop = rewards(MutePartner(), DIALOP, ("one solo plan", tried))
    assert by_dialop[tried] > by_dialop["one solo plan"] + 0.3
    bounded = DIALOP.model_copy(update={"max_proposals": 1})
    assert tried not in {player.name for player in scripted_players(bounded, (1,))}
    for game in generate_games(10, bounded, seed=9):
        players = (Player("", persists=persists) for persists in (False, True))
        once, again = (play(player, MutePartner(), game, bounded).reward for player in players)
        assert once == again


def test_one_that_asks_more_asks_all_that_one_asks_who_asks_less() -> None:
    game = next(generate_games(1, LARGE, seed=2))
    few, many = ([one.text for one in play(Asker(k), ShyPartner(), game, LARGE).turns if one.seat == 0] for k in (2, 5))
    assert few[:2] == many[:2] and len(many) == 6
    assert all(text.startswith("[message] What is ") for text in many[:5])


def test_the_best_question_beats_a_random_one() -> None:
    earned = rewards(ShyPartner(accept_fraction=0), LARGE, ("4 random questions", "4 best questions"), 60)
    assert earned["4 best questions"] > earned["4 random questions"] + 0.01


def test_scores_of_another_scale_are_converted() -> None:
    """With many scores told, the factor is known nearly; with one, hardly, and the answer counts as little as it should."""
    settings = MatchingSettings(p_observed=0.2, p_observed_2=1.0, hardness=0)
    few, many, naive = [], [], []
    for game in generate_games(40, settings, seed=4):
        env = MatchingEnv()
        env.reset(game)
        cells = [(r, p) for r in range(8) for p in range(8) if not game.mask1[r][p]]
        roster, shown = game.roster, game.displayed(1)
        said = [f"[message] {roster.reviewers[r]} on {roster.short_papers[p]}: {shown[r][p]}." for r, p in cells]
        for number, errors in ((1, few), (len(cells), many)):
            history = tuple(Utterance(1, text) for text in said[:number])
            found = beliefs(View(0, "", "", history, env.get_private_view(0), 0))
            errors += [abs(found[cell] - game.table[cell[0]][cell[1]]) for cell in cells[:number]]
        r, p = cells[0]
        naive.append(abs(99 - game.table[r][p]))  # one score told, taken for the highest there is
    assert np.mean(many) < 3 and np.mean(few) < 0.6 * np.mean(naive)


EVEN = SMALL
SHY = ShyPartner(accept_fraction=0)
GAMES = list(generate_games(60, EVEN, seed=5))


def played_by(player: Any, seat: int = 0, max_turns: int = 24, partner: Any = SHY) -> list[Dialogue]:
    env = MatchingEnv(max_turns=max_turns)
    return [played(env, player, partner, game, seat=seat, seed=number) for number, game in enumerate(GAMES)]


class Terse(ShyPartner):
    """Leaves out the names where it tells a score."""

    async def act(self, view: View) -> Turn:
        said = await super().act(view)
        score = re.search(r": (\d+)\.$", said.text)
        return replace(said, text=f"[message] {score[1]}.") if score else said


@pytest.mark.parametrize("name", ["forced:3", "greedy:3", "ideal"])
def test_score_without_names_helps_as_much_as_with_names(name: str) -> None:
    player = baselines(EVEN, 0.0, 3)[name]
    terse, plain = played_by(player, partner=Terse(accept_fraction=0)), played_by(player)
    assert any(turn.text.removeprefix("[message] ").strip(".").isdigit() for turn in terse[0].turns)
    assert [dialogue.reward for dialogue in terse] == [dialogue.reward for dialogue in plain]


def asked(dialogue: Dialogue) -> int:
    return sum(turn.role == "policy" and turn.text.startswith("[message]") for turn in dialogue.turns)


@pytest.mark.parametrize("price", [0.0, 0.02])
def test_ideal_policy_reward_equals_simulated_ideal_asker(price: float) -> None:
    paper = Frontier(*arrays(GAMES, [0] * len(GAMES), 9))
    games = played_by(baselines(EVEN, price)["ideal"])
    questions = np.array([asked(dialogue) for dialogue in games])
    net = np.array([dialogue.reward for dialogue in games], dtype=float) - price * questions
    assert net.mean() == pytest.approx(paper.net(paper.stops(price), price).mean(), abs=0.02)
    assert price or np.mean([dialogue.reward for dialogue in games]) > 0.99


def test_it_asks_less_where_a_question_costs_more() -> None:
    players = (baselines(EVEN, price)["ideal"] for price in (0.0, 0.02, 0.05, 1.0))
    numbers = [np.mean([asked(dialogue) for dialogue in played_by(player)]) for player in players]
    assert numbers == sorted(numbers, reverse=True) and numbers[0] > 4 > numbers[2] > numbers[3] == 0


def test_floor_and_ceiling_are_in_order() -> None:
    found = {name: np.mean([d.reward for d in played_by(player)]) for name, player in baselines(EVEN, 0.0, 3).items()}
    assert found["random"] < found["solo"] < found["forced:3"] < found["ideal"] > found["greedy:3"]


def test_each_asks_as_often_as_its_name_says_from_either_seat() -> None:
    for name, number in (("solo", 0), ("random", 0), ("forced:2", 2), ("greedy:2", 2)):
        for seat in (0, 1):
            unseen = [9 - int(np.sum(game.mask(seat))) for game in GAMES]
            games = played_by(baselines(EVEN, 0.0, 2)[name], seat)
            assert [asked(dialogue) for dialogue in games] == [min(number, there) for there in unseen]


def test_they_leave_themselves_the_turns_to_propose() -> None:
    games = played_by(baselines(EVEN, 0.0, 9)["forced:9"], max_turns=7)
    assert {dialogue.stop_reason for dialogue in games} == {"agreed"} and max(map(asked, games)) == 2
