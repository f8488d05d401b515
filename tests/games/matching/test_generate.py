"""Generated games are DialOp's distribution, never easy, and a function of (config, seed, number) alone."""

import itertools
import pickle

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from slim_rl.errors import ConfigError
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.state import GameState, MatchingSettings


def solve(values: np.ndarray, truth: np.ndarray) -> int:
    """The true score of the plan that is best by `values`."""
    rows, columns = linear_sum_assignment(-values.astype(float))
    return int(truth[rows, columns].sum())


def scores(table: np.ndarray, mask1: np.ndarray, mask2: np.ndarray) -> tuple[int, int, int]:
    """The optimum and both solo plans' true scores, the plain way."""
    solos = [solve(np.where(mask, table, 50), table) for mask in (mask1, mask2)]
    return solve(table, table), solos[0], solos[1]


def is_hard(table: np.ndarray, mask1: np.ndarray, mask2: np.ndarray, hardness: float = 1.25) -> bool:
    best, solo1, solo2 = scores(table, mask1, mask2)
    return solo1 * hardness < best and solo2 * hardness < best


def arrays(game: GameState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array(game.table), np.array(game.mask1), np.array(game.mask2)


def plain_games(num: int, n: int, p: float, seed: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """DialOp's rejection loop."""
    rng = np.random.default_rng(seed)
    kept: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    while len(kept) < num:
        table = rng.integers(0, 100, (n, n))
        mask1, mask2 = rng.random((n, n)) < p, rng.random((n, n)) < p
        table[~mask1 & ~mask2] = 50
        if is_hard(table, mask1, mask2):
            kept.append((table, mask1, mask2))
    return kept


def features(table: np.ndarray, mask1: np.ndarray, mask2: np.ndarray) -> list[float]:
    best, solo1, solo2 = scores(table, mask1, mask2)
    return [
        best, solo1 / best, solo2 / best, max(solo1, solo2) / best, mask1.mean(), mask2.mean(),
        (mask1 & mask2).mean(), table.mean(), table.std(), table[mask1].mean(), table[mask2 & ~mask1].mean(),
    ]  # fmt: skip


def test_statistics_are_those_of_a_plain_rejection_loop() -> None:
    ours = np.array([features(*arrays(game)) for game in generate_games(400, MatchingSettings(n=4), seed=1)])
    plain = np.array([features(*game) for game in plain_games(150, n=4, p=0.4, seed=2)])
    error = np.sqrt(ours.var(axis=0) / len(ours) + plain.var(axis=0) / len(plain))
    assert (np.abs(ours.mean(axis=0) - plain.mean(axis=0)) < 4 * error).all()
    assert (np.abs(ours.std(axis=0) / plain.std(axis=0) - 1) < 0.2).all()


@pytest.mark.parametrize("n", range(2, 8))
def test_every_game_is_hard_and_whole(n: int) -> None:
    for game in generate_games(10, MatchingSettings(n=n, hardness=1.2), seed=5):
        table, mask1, mask2 = arrays(game)
        assert table.shape == mask1.shape == mask2.shape == (n, n) and is_hard(table, mask1, mask2, 1.2)
        assert (table[~mask1 & ~mask2] == 50).all() and 0 <= table.min() <= table.max() <= 99
        assert 1 <= game.scale1 <= 10 and 1 <= game.scale2 <= 10
        assert game.score(game.best()) == game.best_assignment_reward
        assert GameState.from_dict(game.to_dict()) == game


def test_a_full_sized_game_is_that_of_earlier_versions() -> None:
    (game,) = generate_games(1, MatchingSettings(), seed=6)
    assert is_hard(*arrays(game))
    assert (game.id, round(game.scale1, 4), round(game.scale2, 4)) == ("d1cdd56216c66c3a", 1.2721, 4.3455)


def test_the_same_whatever_the_workers_and_the_range() -> None:
    config = MatchingSettings(n=4)
    whole = list(generate_games(40, config, seed=7))
    assert list(generate_games(40, config, seed=7, workers=2)) == whole
    assert list(generate_games(10, config, seed=7, start=25)) == whole[25:35]
    assert list(itertools.islice(generate_games(10**9, config, seed=7), 40)) == whole
    assert len({game.id for game in whole}) == 40
    assert next(iter(generate_games(1, config, seed=8))) != whole[0]


def test_scales_off_leaves_the_same_games_unscaled() -> None:
    scaled = list(generate_games(5, MatchingSettings(n=3), seed=9))
    plain = list(generate_games(5, MatchingSettings(n=3, scales=False), seed=9))
    assert all((game.scale1, game.scale2) == (1.0, 1.0) for game in plain)
    assert [(game.table, game.id) for game in plain] == [(game.table, game.id) for game in scaled]


def test_larger_than_the_filter_with_own_names() -> None:
    names, papers = (tuple(f"{kind}{i}" for i in range(11)) for kind in ("Name", "Paper"))
    settings = MatchingSettings(n=11, hardness=1.05, p_observed=0.3, reviewers=names, papers=papers)
    (game,) = generate_games(1, settings)
    assert game.roster.reviewers == names and is_hard(*arrays(game), 1.05)


def test_an_impossible_config_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slim_rl.games.matching.generate.MAX_DRAWS", 2**10)
    with pytest.raises(ConfigError, match=r"None of 1,024 .*p_observed = 1\.0.*lower game\.hardness") as caught:
        list(generate_games(2, MatchingSettings(n=2, p_observed=1.0)))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value), "as a worker's process hands it on"
    with pytest.raises(ConfigError, match=r"above 3.0 times"):  # one seat's plan leaves no draw for the other's
        list(generate_games(1, MatchingSettings(hardness=3)))


MIXED = MatchingSettings(n=3, hardness=0, scales=False, sizes=(3, 4, 5), names="random")


def test_mixed_boards_draw_names_independently_of_the_batch() -> None:
    games = list(generate_games(60, MIXED, seed=1))
    sizes = [game.n for game in games]
    assert all(10 <= sizes.count(size) <= 30 for size in (3, 4, 5))
    assert all(len(set(game.roster.reviewers)) == game.n == len(game.roster.papers) for game in games)
    assert len({game.roster.reviewers[0] for game in games}) == len({game.roster.papers[0] for game in games}) == 8
    assert len({game.roster for game in games}) > 50
    assert list(generate_games(20, MIXED, seed=1, start=40)) == games[40:]


def test_names_and_sizes_move_no_scores() -> None:
    plain = MIXED.changed(sizes=(), names="first")
    renamed = list(generate_games(5, MIXED.changed(sizes=()), seed=2))
    assert [game.table for game in renamed] == [game.table for game in generate_games(5, plain, seed=2)]
    of_four = [game for game in generate_games(30, MIXED, seed=2) if game.n == 4]
    all_four = list(generate_games(30, plain.changed(n=4), seed=2))
    assert of_four and all(any(game.table == other.table for other in all_four) for game in of_four)
