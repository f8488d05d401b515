"""The numbers of the report, on runs whose behaviour is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic

from slim_rl import statistics as st
from slim_rl.analysis.catalog import order_arms
from slim_rl.analysis.load import load
from slim_rl.analysis.results import BINS, summarise
from slim_rl.games.matching.env import MatchingEnv


@pytest.fixture(scope="module")
def frame(log_dir: Path) -> pd.DataFrame:
    return load([log_dir]).frame


@pytest.fixture(scope="module")
def results(frame: pd.DataFrame) -> dict:
    return summarise(frame, draws=200, kinds=MatchingEnv.question_kinds)


def test_trends_are_those_of_the_made_up_arms(results: dict) -> None:
    slope = {row["arm"]: row for row in results["trends"] if row["measure"] == "questions"}
    for arm in ("shy", "mute"):
        first, last = synthetic.ASKS[arm]
        want = results["per_steps"] * (last - first) / 24
        assert slope[arm]["low"] < want < slope[arm]["high"]
        assert len(slope[arm]["by_run"]) == slope[arm]["runs"] == 2
    assert slope["shy"]["low"] > max(0, slope["mute"]["high"])
    difference = next(row for row in results["differences"] if row["measure"] == "questions")
    assert (difference["arm"], difference["other"]) == ("shy", "mute")
    assert difference["value"] == pytest.approx(slope["shy"]["value"] - slope["mute"]["value"])
    assert difference["note"] == "least possible p 0.33"  # two runs an arm


def test_only_primary_measures_are_corrected_and_together(results: dict) -> None:
    for rows in (results["trends"], results["differences"], results["held_out"]["paired"]):
        family = [row for row in rows if "p_holm" in row]
        assert {row["measure"] for row in family} == {"questions", "informative_pairs", "question_value", "reward"}
        want = st.adjust([row["p"] for row in family])
        assert [row["p_holm"] for row in family] == pytest.approx(list(want), nan_ok=True)


def test_curves_hold_every_dialogue_once(results: dict, frame: pd.DataFrame) -> None:
    played = frame[~frame["failed"] & (frame["phase"] == "train")]
    for arm, curve in results["curves"].items():
        points = curve["measures"]["reward"]
        assert sum(points["n"]) == (played["arm"] == arm).sum()
        assert len(curve["steps"]) == len(points["mean"]) == 24 <= BINS
        assert set(points["runs"]) == {f"{arm}-0", f"{arm}-1"}
        overall = np.average(points["mean"], weights=points["n"])
        assert overall == pytest.approx(played.loc[played["arm"] == arm, "reward"].mean())


def test_many_steps_share_points(frame: pd.DataFrame) -> None:
    longer = frame.assign(step=frame["step"] * 7 + np.arange(len(frame)) % 7)
    curve = summarise(longer, draws=20)["curves"]["shy"]
    assert len(curve["steps"]) == BINS
    assert curve["steps"] == sorted(curve["steps"])


def test_failures_are_among_the_stop_reasons_only(results: dict, frame: pd.DataFrame) -> None:
    failed = frame[frame["failed"]]
    assert len(failed) > 0
    train = frame[frame["phase"] == "train"]
    for arm, part in results["stop_reasons"].items():
        assert sum(part["counts"].values()) == (train["arm"] == arm).sum()
        assert np.sum(list(part["shares"].values()), axis=0) == pytest.approx(1)
    counted = sum(point["n"] for points in results["reward_by_questions"].values() for point in points)
    assert counted == len(frame) - len(failed)


def test_kinds_are_shares_of_the_questions(results: dict) -> None:
    for part in results["kinds"].values():
        total = np.sum([part["shares"][kind] for kind in ("pair", "open", "check", "process")], axis=0)
        assert total[np.array(part["questions_any"]) > 0] == pytest.approx(1)


def test_held_out_checkpoints_are_compared_on_the_same_games(results: dict, frame: pd.DataFrame) -> None:
    cells = {(cell["arm"], cell["step"]): cell for cell in results["held_out"]["cells"]}
    assert set(cells) == {("shy", 0), ("shy", 24), ("mute", 0), ("mute", 24)}
    row = next(r for r in results["held_out"]["paired"] if (r["arm"], r["measure"]) == ("shy", "questions"))
    assert (row["from"]["step"], row["to"]["step"]) == (0, 24)
    part = frame[(frame["phase"] == "eval") & (frame["arm"] == "shy") & ~frame["failed"]]
    means = part.groupby(["step", "game_id"], observed=True)["questions"].mean().unstack("step").dropna()
    assert row["clusters"] == len(means) <= 8
    assert row["value"] == pytest.approx((means[24] - means[0]).mean())


def test_one_run_of_one_step_has_numbers_without_intervals() -> None:
    made = list(synthetic.make_runs(arms=("shy",), seeds=1, steps=1, games_per_step=1, group=2, n=3, eval_games=0))
    rows = [
        {
            "arm": "shy",
            "run": "a",
            "phase": "train",
            "step": 0.0,
            "cluster": "g",
            "policy": "p",
            "partner": "q",
            "failed": False,
        }
        | {
            "stop_reason": "agreed",
            "questions": 1.0,
            "informative_pairs": 1.0,
            "reward": 0.5,
            "words": 9.0,
            "question_value": 0.1,
        }
        | dict.fromkeys(("pair", "open", "check", "process"), 0)
        for _ in made
    ]
    frame = pd.DataFrame(rows).astype(dict.fromkeys(("arm", "run", "phase", "cluster", "stop_reason"), "category"))
    results = summarise(frame, draws=20)
    assert all(np.isnan(row["value"]) and row["note"] for row in results["trends"])
    assert results["curves"]["shy"]["measures"]["reward"]["mean"] == [0.5]
    assert np.isnan(results["curves"]["shy"]["measures"]["reward"]["low"][0])
    assert results["differences"] == results["held_out"]["cells"] == []


def test_the_treatment_comes_first() -> None:
    assert order_arms(["mute", "shy", "forthcoming"]) == ["shy", "forthcoming", "mute"]
