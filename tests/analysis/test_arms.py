"""Runs are seeds of one arm only if they differ in their seed alone; what is not pooled is said, with why."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from slim_rl.analysis import analyze
from slim_rl.analysis.held_out import cells_of, compare
from slim_rl.analysis.load import load
from slim_rl.config import load_config
from slim_rl.config.trainers import learned_settings
from slim_rl.lab.experiment.contrasts import Manifest
from slim_rl.lab.experiment.results import read
from tests.analysis import synthetic

Settings = dict[str, Any]
BASE: Settings = {"train.steps": 56, "game.n": 3, "seed": 0}


def write(folder: Path, runs: dict[str, Settings], **changed: Any) -> Path:
    """Logs of one arm, a run a folder, each with its own settings."""
    for run, settings in runs.items():
        path = folder / run / "train.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for line in synthetic.make_runs(("shy",), seeds=1, steps=3, games_per_step=2, n=3, eval_games=4):
                line.run, line.settings = run, settings
                file.write(orjson.dumps({**line.to_dict(tokens=False), **changed}) + b"\n")
    return folder


def arms(folder: Path) -> dict[str, str]:
    """run -> arm, as a log has it."""
    frame = load([folder]).frame
    assert frame["arm"].cat.categories.size == frame["arm"].nunique()
    return dict(frame[["run", "arm"]].astype(str).drop_duplicates().itertuples(index=False, name=None))


def test_runs_of_other_seeds_are_one_arm(tmp_path: Path) -> None:
    write(tmp_path, {"a": BASE, "b": {**BASE, "seed": 1}})
    assert arms(tmp_path) == {"a": "shy", "b": "shy"}
    assert not [warning for warning in load([tmp_path]).warnings if "pooled" in warning]


@pytest.mark.parametrize(
    "change", ["train.steps=14", "game.n=4", "train.reward=agreed", "policy.model=x", "data.seed=7"]
)
def test_a_run_that_differs_in_more_is_another_arm(tmp_path: Path, change: str) -> None:
    key, _, value = change.partition("=")
    changed = {**BASE, key: int(value) if value.isdecimal() else value, "seed": 2}
    write(tmp_path, {"a": BASE, "b": {**BASE, "seed": 1}, "c": changed})
    found = arms(tmp_path)
    assert found["a"] == found["b"] != found["c"] == f"shy ({change})"
    (said,) = [warning for warning in load([tmp_path]).warnings if warning.startswith("Not pooled")]
    assert f"differ in {key}: " in said and found["a"] in said and found["c"] in said


@pytest.mark.usefixtures("unprinted")
def test_one_seed_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path, {"a": BASE, "again": BASE, "b": {**BASE, "seed": 1}})
    assert arms(tmp_path) == {"a": "shy", "again": "shy (seed 0 again: again)", "b": "shy"}
    summary = analyze([tmp_path], tmp_path / "plots")
    changes = [row for row in summary.results["held_out"] if row["measure"] == "questions"]
    assert {row["arm"]: len(row["by_run"]) for row in changes} == {"shy": 2, "shy (seed 0 again: again)": 1}
    assert "again has the seed of a, 0" in summary.report.read_text(encoding="utf-8")


def test_of_one_seed_twice_the_longer_run_counts(tmp_path: Path) -> None:
    write(tmp_path, {"a": BASE}, step=1)
    write(tmp_path, {"b": BASE})
    assert arms(tmp_path) == {"a": "shy (seed 0 again: a)", "b": "shy"}


def test_a_resumed_run_is_as_it_was_set_last(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", {"run": {**BASE, "train.steps": 2}})
    log = folder / "run" / "train.jsonl"
    log.write_bytes(log.read_bytes() + (write(tmp_path / "b", {"run": BASE}) / "run" / "train.jsonl").read_bytes())
    write(folder, {"other": {**BASE, "seed": 1}})
    assert set(arms(folder).values()) == {"shy"}


def test_two_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path / "one", {"run": BASE})
    write(tmp_path / "two", {"run": {**BASE, "train.reward": "agreed"}})
    assert set(load([tmp_path]).frame["arm"].cat.categories) == {"shy (train.reward=game)", "shy (train.reward=agreed)"}


def test_evaluations_of_two_models_are_two_arms(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, {name: BASE}, phase="eval", step=None, policy={"model": name})
    assert arms(tmp_path) == {"a": "shy (policy=a)", "b": "shy (policy=b)"}


def test_trained_arms_are_compared_over_seeds_and_games(tmp_path: Path) -> None:
    for reward, steps in ((0.25, 14), (0.75, 56)):
        runs = {f"{steps}-s{seed}": {**BASE, "seed": seed, "train.steps": steps} for seed in (0, 1)}
        write(tmp_path, runs, reward=reward)
    (pair,) = compare(cells_of(load([tmp_path]).frame))
    assert (pair["second"], pair["first"]) == ("shy (train.steps=56)", "shy (train.steps=14)") and pair["games"] == 4
    rewards = pair["measures"]["reward"]
    assert (rewards["before"], rewards["after"], rewards["value"]) == (0.25, 0.75, 0.5)
    assert rewards["over"] == "seeds and games" and pair["measures"]["questions"]["value"] == 0.0


def test_an_experiment_pools_over_its_folders(tmp_path: Path) -> None:
    write(tmp_path, {"s0": BASE, "s1": {**BASE, "seed": 1}, "short": {**BASE, "seed": 2, "train.steps": 14}})
    source = {"logs": [str(tmp_path / "*")], "command": "none"}
    plays = read(Manifest.model_validate({"title": "t", "sources": {"held_out": source}}))
    assert plays.arms == ["shy (train.steps=14)", "shy (train.steps=56)"]
    assert set(plays.held_out["arm"]) == set(plays.arms)
    assert any("Not pooled" in warning for warning in plays.warnings)


SAME = "name=other output_dir=elsewhere log.tokens=true train.save_every=1 train.processes=1 train.eval_every=5 train.eval_games=3"
SAME += " data.eval=null train.micro_batch=2 train.threads=2 partner.openai.budget_usd=3 partner.openai.concurrency=2"
OTHER = "game.n=4 partner.kind=mute train.steps=14 limits.turn_tokens=65 partner.openai.model=x seed=3"


def test_settings_that_change_nothing_learned_do_not_split() -> None:
    usual = learned_settings(load_config("matching_local"))
    for change in (*SAME.split(), "verl.adv_estimator=gae"):
        assert learned_settings(load_config("matching_local", [change])) == usual, change
    for change in OTHER.split():
        assert learned_settings(load_config("matching_local", [change])) != usual, change
