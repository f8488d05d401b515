"""The ledger of asking: its parts sum to the whole, and its ideal asker is as good as it is called."""

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

from slim_rl.analysis import analyze
from slim_rl.analysis.load import load, read_dialogue
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.questions.value import frontier as arrays
from slim_rl.games.matching.state import GameState, MatchingSettings
from slim_rl.lab.askers import Askers, question_costs, simulated
from slim_rl.lab.frontier import Frontier
from slim_rl.lab.gap import LOSSES, losses, with_gap
from tests.analysis import synthetic

PARTS = [name for name in LOSSES if name != "lost"]
numbers = draw.lists(draw.floats(0, 1), min_size=8, max_size=8)


def frontier(*arguments: Any) -> Frontier:
    """One asker's, as the lab reads it."""
    return Frontier(*arrays(*arguments))


@given(numbers, numbers, numbers, draw.lists(draw.integers(0, 12), min_size=8, max_size=8), draw.floats(0, 0.2))
def test_the_parts_sum_to_the_whole(
    rising: list[float], known: list[float], earned: list[float], asked: list[int], price: float
) -> None:
    rewards = np.sort(np.outer(np.linspace(0.2, 1, 8), [0.3, *rising[:4], 1.0]), axis=1)
    ideal = Frontier(rewards, np.abs(np.diff(rewards, axis=1, append=rewards[:, -1:])))
    found = losses(ideal, asked, known, earned, price)
    assert sum(found[name] for name in PARTS) == pytest.approx(found["lost"], abs=1e-12)


def test_each_fault_is_found_where_it_was_made() -> None:
    """Two games: one question solves the first, and in the second, which is solved, there is something left to ask. At a price of 0.1."""
    none = -np.inf
    ideal = Frontier(np.array([[0.5, 1.0, 1.0], [1.0, 1.0, 1.0]]), np.array([[0.5, none, none], [0.0, 0.0, none]]))

    def means(asked: list[int], known: list[float], earned: list[float]) -> dict[str, float]:
        found = losses(ideal, asked, known, earned, 0.1)
        return {name: round(float(part.mean()), 6) for name, part in found.items() if abs(part.mean()) > 1e-9}

    assert means([1, 0], [1, 1], [1, 1]) == {}
    assert means([0, 0], [0.5, 1], [0.5, 1]) == {"lost": 0.2, "lost_by_number": 0.2}
    assert means([1, 1], [1, 1], [1, 1]) == {"lost": 0.05, "lost_by_number": 0.05}
    assert means([0, 1], [0.5, 1], [0.5, 1]) == {"lost": 0.25, "lost_by_stopping": 0.25}
    assert means([3, 3], [1, 1], [1, 1]) == {"lost": 0.25, "lost_by_number": 0.25}
    assert means([1, 0], [0.6, 1], [0.6, 1]) == {"lost": 0.2, "lost_by_choice": 0.2}
    assert means([1, 0], [1, 1], [0.0, 1]) == {"lost": 0.5, "lost_by_use": 0.5}


# -- the ideal asker ---------------------------------------------------------------------------------------------------


def _games(n: int, number: int, seen: float = 0.9) -> list[GameState]:
    wanted = MatchingSettings(n=n, p_observed=0.25, p_observed_2=seen, scales=False, hardness=0)
    return list(generate_games(number, wanted, seed=11))


@pytest.mark.parametrize("n", [2, 3])
def test_it_asks_what_trying_every_question_finds_best(n: int) -> None:
    plans = np.array(list(permutations(range(n))))
    answers = np.linspace(0.5, 99.5, 100)  # of a score that is uniform between 0 and 100
    for game in _games(n, 12):
        curve = frontier([game], [0], n * n)
        table, known, chance = (np.array(part) for part in (game.table, game.mask(0), np.mean(game.mask(1))))
        for k in range(n * n):
            believed = np.where(known, table, 50.0)
            scores = believed[np.arange(n), plans].sum(axis=1)
            truly = table[np.arange(n), plans].sum(axis=1)[np.isclose(scores, scores.max())].mean()
            assert curve.rewards[0, k] == pytest.approx(truly / game.best_assignment_reward)
            if known.all():
                break
            gains = np.full((n, n), -np.inf)
            for cell in np.argwhere(~known):
                uses = plans[:, cell[0]] == cell[1]
                gains[tuple(cell)] = np.maximum.reduce(scores[:, None] + uses[:, None] * (answers - 50.0)).mean()
            best = gains.max()
            worth = chance * (best - scores.max()) / game.best_assignment_reward
            assert curve.expected_gain[0, k] == pytest.approx(worth, abs=1e-4)
            if np.sum(gains > best - 0.05) > 1:
                break  # which of those that tie it asks is drawn
            known[np.unravel_index(gains.argmax(), gains.shape)] = True


@pytest.mark.parametrize("price", [0.01, 0.03])
def test_greedy_asker_is_near_the_exact_optimum(price: float) -> None:
    """On 2 × 2 boards, whose two plans differ by a sum: all that matters is that difference and how many cells are unknown."""
    games = _games(2, 400, seen=1.0)
    ideal = Frontier(*frontier(games, [0] * len(games), 4))
    mine = ideal.net(ideal.stops(price), price)
    best = [_optimum(game, price) for game in games]
    assert 0 < np.mean(best) - mine.mean() < 0.015


def _optimum(game: GameState, price: float) -> float:
    """The net reward of the policy that dynamic programming finds best before any answer, when it plays this game."""
    answers = np.arange(101)
    cost, signs = price * game.best_assignment_reward, np.array([[1, -1], [-1, 1]])
    differences = np.arange(-400, 401)
    worth = [np.abs(differences) / 2]  # with no cell unknown, as by how much the better plan exceeds the mean of both
    asks = [np.zeros(len(differences), dtype=bool)]
    for _ in range(4):
        after = np.clip(differences[:, None] + answers - 50 + 400, 0, 800)
        asking = worth[-1][after].mean(axis=1) - cost
        asks.append(asking > np.abs(differences) / 2)
        worth.append(np.maximum(asking, np.abs(differences) / 2))
    table, known = np.array(game.table), np.array(game.mask(0))
    paid = 0
    for cell in np.argwhere(~known):
        believed = int((signs * np.where(known, table, 50)).sum())
        if not asks[int((~known).sum())][believed + 400]:
            break
        known[tuple(cell)], paid = True, paid + 1
    believed = int((signs * np.where(known, table, 50)).sum())
    plans = [table[0, 0] + table[1, 1], table[0, 1] + table[1, 0]]
    earned = np.mean(plans) if believed == 0 else plans[believed < 0]
    return float(earned) / game.best_assignment_reward - price * paid


@settings(deadline=None, max_examples=20)
@given(draw.integers(0, 2**31))
def test_a_game_is_asked_about_alike_whatever_is_asked_beside_it(seed: int) -> None:
    three, four = _games(3, 3), _games(4, 2)
    mixed = Frontier(*frontier([four[0], *three, four[1]], [1, 0, 1, 0, 0], 5, "random", seed))
    alone = frontier([three[1]], [1], 5, "random", seed)
    assert (mixed.rewards[2] == alone.rewards[0]).all() and (mixed.expected_gain[2] == alone.expected_gain[0]).all()


def test_free_questions_are_all_asked_and_dear_ones_never() -> None:
    curve = Frontier(*frontier(_games(3, 200), [0] * 200, 9))
    assert (curve.at(curve.stops(0.0)) == 1.0).all()
    assert (curve.stops(0.5) == 0).all()
    assert curve.net_allocated(0.0, 0.1) == pytest.approx(curve.rewards[:, 0])
    assert curve.net_allocated(curve.stops(0.02).mean(), 0.02) == pytest.approx(curve.net(curve.stops(0.02), 0.02))
    for number in (0.5, 2.0, 4.5):  # better than the same number in every game
        assert curve.net_allocated(number, 0.02).mean() > curve.net(number, 0.02).mean() + 0.002
    assert (curve.at(40) == curve.rewards[:, -1]).all()


# -- in logs and pages -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unprinted")
def test_a_log_has_its_ledger(log_dir: Path, tmp_path: Path) -> None:
    log = load([log_dir])
    played = log.frame[(log.frame["phase"] != "train") & ~log.frame["failed"]]
    rows = with_gap(log, played, {"shy": 0.02, "mute": 0.02}, Askers())
    assert rows[PARTS].sum(axis=1).to_numpy() == pytest.approx(rows["lost"].to_numpy(), abs=1e-12)
    assert rows["lost_by_use"].to_numpy() == pytest.approx((rows["best_known"] - rows["reward"]).to_numpy())
    summary = analyze([log_dir], tmp_path, max_dialogues=0, price=0.02)
    found = {row["measure"]: row["after"] for row in summary.results["gap"] if row["arm"] == "shy"}
    after = rows[(rows["step"] == rows["step"].max()) & (rows["arm"] == "shy")]
    expected = after.groupby(["run", "cluster"], observed=True)[list(LOSSES)].mean().groupby("run").mean().mean()
    assert found == pytest.approx(expected.to_dict(), abs=1e-9)
    free = with_gap(log, played, {"shy": 0.0, "mute": 0.0}, Askers())
    assert (free["lost_by_use"] == rows["lost_by_use"]).all() and (free["lost"] != rows["lost"]).any()
    assert "Gap to the ideal asker" in summary.report.read_text(encoding="utf-8")


def test_askers_on_paper_are_entered_in_one_table(log_dir: Path) -> None:
    log = load([log_dir])
    played = log.frame[(log.frame["phase"] != "train") & ~log.frame["failed"] & (log.frame["arm"] == "shy")]
    met = Askers(3)
    table = simulated(log, played, {"shy": 0.02}, met).set_index(["asker", "questions"])
    assert len(table) == 4 + 4 + 1 and set(table["games"]) == {played["cluster"].nunique()} == {8}
    nets = table["net_reward"]
    assert nets["random", 0] == pytest.approx(nets["greedy", 0])
    once = played.drop_duplicates("cluster")
    states = [GameState.from_dict(read_dialogue(log, row)["game_state"]) for row in once.itertuples()]
    alone = Frontier(*frontier(states, list(once["seat"]), 3))
    assert nets["greedy", 3] == pytest.approx(alone.net(3, 0.02).mean())
    assert nets["ideal"].item() == pytest.approx(alone.net(alone.stops(0.02), 0.02).mean())
    assert (table["low"] < nets).all() and (nets < table["high"]).all()
    assert simulated(log, played.iloc[:0], {}, met).empty


# -- prices that are drawn for each game --------------------------------------------------------------------------------


def test_gap_uses_the_question_cost_of_each_game() -> None:
    games = _games(3, 40)
    ideal = Frontier(*frontier(games, [0] * len(games), 9))
    asked, known = np.arange(40) % 4, ideal.at(2)
    earned = known * 0.9
    alike = losses(ideal, asked, known, earned, np.full(40, 0.01))
    for name, part in losses(ideal, asked, known, earned, 0.01).items():
        assert (alike[name] == part).all(), "one price for all is a price a game"
    prices = np.where(np.arange(40) % 2, 0.05, 0.002)
    found = losses(ideal, asked, known, earned, prices)
    assert sum(found[name] for name in PARTS) == pytest.approx(found["lost"], abs=1e-12)
    for price in (0.05, 0.002):
        mine = prices == price
        stops = ideal.stops(price)[mine]
        assert (ideal.stops(prices)[mine] == stops).all()
        net = ideal.net(ideal.stops(price), price)[mine] - (earned - price * asked)[mine]
        assert found["lost"][mine] == pytest.approx(net)


def test_gap_takes_the_question_cost_from_the_log(tmp_path: Path) -> None:
    synthetic.write_runs(tmp_path / "logs", arms=("shy",), seeds=1, steps=2, n=3, eval_games=20)
    log = load([tmp_path / "logs"])
    played = log.frame[(log.frame["phase"] != "train") & ~log.frame["failed"]]
    priced = played.assign(price=np.where(np.arange(len(played)) % 2, 0.03, np.nan))
    assert set(question_costs(priced, {"shy": 0.01})) == {0.03, 0.01}
    assert set(question_costs(played, {"shy": 0.01})) == {0.01} and set(question_costs(played, {})) == {0.0}
    found = with_gap(log, priced, {"shy": 0.01}, Askers())["lost"]
    for price in (0.03, 0.01):
        alone = with_gap(log, played, {"shy": price}, Askers())["lost"]
        mine = question_costs(priced, {"shy": 0.01}) == price
        assert found[mine].to_numpy() == pytest.approx(alone[mine].to_numpy())
