"""The numbers of the report, on runs whose behaviour is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from slim_rl.analysis.arms import order_arms
from slim_rl.analysis.figures import training
from slim_rl.analysis.load import load
from slim_rl.analysis.plays import of_frame
from slim_rl.analysis.report_tables import Tables
from slim_rl.analysis.summary import BINS, summarise
from slim_rl.dialogue.log import DialogueLog
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.lab.experiment import baseline, baseline_figure
from tests.analysis import synthetic


@pytest.fixture(scope="module")
def frame(log_dir: Path) -> pd.DataFrame:
    return load([log_dir]).frame


@pytest.fixture(scope="module")
def results(frame: pd.DataFrame) -> dict:
    return summarise(frame, kinds=MatchingEnv.question_kinds)


def test_report_with_forced_evaluations_has_decoding_baseline(log_dir: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    boards = [synthetic.make_board(rng, 3) for _ in range(6)]
    forced = [("tiny", 1), ("tiny", 3), ("another", 3)]
    for model, number in forced:
        with DialogueLog(tmp_path / f"{model}_forced{number}.jsonl") as log:
            for i, board in enumerate(boards):
                names = {"id": f"e{i}", "game_id": f"g{i}", "run": f"{model}_forced{number}", "phase": "eval"}
                dialogue = synthetic.make_dialogue(rng, board, number, "shy", **names)
                dialogue.policy = {"model": model, "intervention": f"forced:{number}"}
                log.append(dialogue)
    frame = load([log_dir, tmp_path]).frame
    found = baseline.of_frame(frame)
    cells = frame[(frame["mode"] != "free") & (frame["policy"] == "tiny")].groupby("run", observed=True)
    assert [point["questions"] for point in found["forced"]] == sorted(cells["questions"].mean())
    assert {point["reward"] for point in found["forced"]} == set(cells["reward"].mean())
    last = frame[(frame["phase"] == "eval") & (frame["step"] == 24) & (frame["arm"] == "shy") & ~frame["failed"]]
    rewards = last.groupby("run", observed=True)["reward"].mean()
    assert [point["reward"] for point in found["trained"]["shy"]] == pytest.approx(list(rewards))
    assert found["initial"]["questions"] < found["trained"]["shy"][0]["questions"]
    arms = {"arms": list(frame["arm"].cat.categories)}
    drawn = baseline_figure.of_report({**arms, "baseline": found})
    assert drawn is not None and drawn.axes[0].get_legend() is not None
    without = baseline.of_frame(load([log_dir]).frame)
    assert without["forced"] == [] and baseline_figure.of_report({**arms, "baseline": without}) is None


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
    curve = summarise(longer)["curves"]["shy"]
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


def test_held_out_games_are_compared_before_and_after(results: dict, frame: pd.DataFrame) -> None:
    cells = {(cell["arm"], cell["step"]): cell for cell in results["checkpoints"]}
    assert set(cells) == {("shy", 0), ("shy", 24), ("mute", 0), ("mute", 24)}
    row = next(r for r in results["held_out"] if (r["arm"], r["measure"]) == ("shy", "questions"))
    assert (row["runs"], row["over"]) == (2, "seeds and games")
    part = frame[(frame["phase"] == "eval") & (frame["arm"] == "shy") & ~frame["failed"]]
    means = part.groupby(["run", "step", "game_id"], observed=True)["questions"].mean().unstack("step").dropna()
    change = (means[24] - means[0]).groupby("run", observed=True).mean()
    assert row["clusters"] == means.index.get_level_values("game_id").nunique() <= 8
    assert row["by_run"] == pytest.approx(change.tolist()) and row["value"] == pytest.approx(change.mean())


def test_intermediate_checkpoints_have_a_table(frame: pd.DataFrame) -> None:
    between = frame[(frame["phase"] == "eval") & (frame["step"] == 24)].assign(step=12.0)
    results = summarise(pd.concat([frame, between], ignore_index=True))
    ends = [(row["arm"], row["measure"], row["value"]) for row in results["held_out"] if row["measure"] == "reward"]
    assert ends == [(r["arm"], "reward", r["value"]) for r in summarise(frame)["held_out"] if r["measure"] == "reward"]
    assert [row["step"] for row in Tables(results).checkpoints().rows] == [0, 12, 24] * 2
    assert not Tables(summarise(frame)).checkpoints().rows
    for numbers, dots in ((results, [3, 3]), (summarise(frame), [])):
        drawn = training(numbers)
        assert drawn is not None
        for ax in drawn.axes:
            assert [len(one.get_offsets()) for one in ax.collections if isinstance(one, PathCollection)] == dots


def test_what_was_played_during_training_is_not_before_it(frame: pd.DataFrame) -> None:
    """A run that was not played before its first step has an after alone."""
    held_out = frame["phase"] == "eval"
    between = frame[held_out & (frame["step"] == 24)].assign(step=12.0)
    late = pd.concat([frame[~(held_out & (frame["step"] == 0))], between], ignore_index=True)
    for rows in (late, late[late["phase"] == "eval"]):
        plays = of_frame(rows)
        assert set(plays.held_out["when"]) == {"after"}
        assert plays.held_out["reward"].tolist() == of_frame(frame).held_out.query("when == 'after'")["reward"].tolist()


def test_one_run_of_one_step_has_numbers_without_intervals() -> None:
    made = list(synthetic.make_runs(arms=("shy",), seeds=1, steps=1, games_per_step=1, group=2, n=3, eval_games=0))
    rows = [
        {
            "arm": "shy", "run": "a", "phase": "train", "step": 0.0, "cluster": "g", "policy": "p", "mode": "free",
            "partner": "q", "failed": False,
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
    ]  # fmt: skip
    frame = pd.DataFrame(rows).astype(dict.fromkeys(("arm", "run", "phase", "cluster", "stop_reason"), "category"))
    results = summarise(frame)
    assert results["curves"]["shy"]["measures"]["reward"]["mean"] == [0.5]
    assert np.isnan(results["curves"]["shy"]["measures"]["reward"]["low"][0])
    assert results["held_out"] == results["verdict"] == results["checkpoints"] == []


def test_the_treatment_comes_first() -> None:
    assert order_arms(["mute", "shy", "forthcoming"]) == ["shy", "forthcoming", "mute"]
