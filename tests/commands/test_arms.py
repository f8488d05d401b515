"""Experiments: arms times seeds as runs of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slim_rl.commands.arms import Run, plan, run_all
from slim_rl.config import load_config
from slim_rl.errors import ConfigError, SlimError
from tests.paths import ROOT

CONFIG = ROOT / "configs" / "matching_local.yaml"


def test_every_arm_comes_with_every_seed_and_differs_in_its_own_keys_only() -> None:
    runs = plan(CONFIG, [], [0, 1], ["train.steps=7"])
    base = load_config(CONFIG, ["train.steps=7"])
    assert len(runs) == 2 * len(base.arms) and len({run.name for run in runs}) == len(runs)
    assert [run.seed for run in runs] == [0] * len(base.arms) + [1] * len(base.arms)
    for run in runs:
        config = load_config(CONFIG, run.overrides)
        assert (config.arm_name, config.seed, config.train.steps) == (run.arm, run.seed, 7)
        assert config.data == base.data and config.game == base.game and config.limits == base.limits
    kinds = {run.arm: load_config(CONFIG, run.overrides) for run in runs}
    assert kinds["mute"].partner.kind == "mute" and kinds["forthcoming"].partner.kind == "forthcoming"
    assert kinds["shuffled_reward"].train.reward == "shuffled" and kinds["frozen_policy"].train.frozen


def test_an_unknown_arm_is_named_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="no arm loud"):
        plan(CONFIG, ["loud"], [0])


class Echo(Run):
    """A run whose command writes its name and fails if it is told to."""

    def command(self, config: Path) -> list[str]:
        return [sys.executable, "-c", f"print('{self.name}'); raise SystemExit({self.seed})"]


def test_the_others_go_on_when_one_fails_and_it_is_named(tmp_path) -> None:
    runs = [Echo("good", "a", 0, ()), Echo("bad", "a", 3, ()), Echo("also-good", "a", 0, ())]
    with pytest.raises(SlimError, match="bad") as error:
        run_all(CONFIG, runs, 2, tmp_path)
    assert "also-good" not in str(error.value)
    assert [(tmp_path / f"{run.name}.out").read_text().strip() for run in runs] == ["good", "bad", "also-good"]
