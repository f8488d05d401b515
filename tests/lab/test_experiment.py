"""What an experiment shows: its contrasts, on made-up runs whose behaviour is known."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
import yaml

from slim_rl.config import load_section
from slim_rl.errors import ConfigError, DataError
from slim_rl.lab.experiment import results as ex
from slim_rl.lab.experiment.contrasts import Contrast, Contrasts, Manifest, Outcome, load_manifest
from tests.analysis import synthetic
from tests.lab.conftest import CONTRASTS, GAMES, SEEDS
from tests.paths import ROOT

pytestmark = pytest.mark.usefixtures("few_draws")


@pytest.fixture(scope="module")
def plays(manifest_path: Path, few_draws: None) -> ex.Plays:
    return ex.read(load_manifest(manifest_path)[0])


@pytest.fixture(scope="module")
def compared(manifest_path: Path, plays: ex.Plays) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in ex.compare(plays, *load_manifest(manifest_path))}


def test_what_was_chosen_after_looking_was_not_predicted(manifest_path: Path, plays: ex.Plays) -> None:
    manifest, contrasts = load_manifest(manifest_path)
    explored = ex.compare(plays, manifest.model_copy(update={"preregistered": False}), contrasts)
    found = {row["name"]: row["found"] for row in explored}
    assert found["dose"] == "shown" and "as predicted" not in found.values()


def test_contrasts_are_those_of_the_made_up_arms(compared: dict[str, dict[str, Any]]) -> None:
    assert list(compared) == [contrast["name"] for contrast in CONTRASTS]
    assert compared["never run"]["found"] == compared["never run"]["note"] == "not run"
    more, rises = compared["asks more"], compared["rises"]
    want = synthetic.ASKS["shy"][1] - synthetic.ASKS["mute"][1]
    assert more["low"] < want < more["high"]
    assert more["value"] > 1 and more["runs"] == [SEEDS, SEEDS] and more["games"] == GAMES
    assert more["least"] == more["p_permutation"] == pytest.approx(2 / 70)
    assert more["p"] == max(more["p_crossed"], more["p_permutation"])
    assert more["p_holm"] == pytest.approx(4 * more["p"]), "what was not run counts in the family"
    assert more["least_holm"] == pytest.approx(8 / 70)
    assert more["found"] == "not shown", "four seeds cannot show it in a family of four"
    assert rises["least_holm"] == pytest.approx(2 * 2 / 16), "one larger, two smaller in the family"
    assert rises["least"] == 2 / 2**SEEDS and rises["b"] == "zero"
    assert compared["dose"]["value"] == pytest.approx(want, rel=0.25) and compared["dose"]["found"] == "as predicted"
    assert more["over"] == "seeds and games"
    number = compared["above a number"]
    assert number["b"] == "0.3" and number["value"] == pytest.approx(np.mean(more["by_run"][0]) - 0.3)


def test_contrasts_computed_elsewhere_count_in_the_family(manifest_path: Path, plays: ex.Plays) -> None:
    manifest, contrasts = load_manifest(manifest_path)
    larger = contrasts.model_copy(update={"elsewhere": {"at another commit": (1.0, 1.0), "and one more": (0.9, 0.5)}})
    one, two = (ex.compare(plays, manifest, family) for family in (contrasts, larger))
    assert one[0]["p_holm"] == pytest.approx(4 * one[0]["p"]) and two[0]["p_holm"] == pytest.approx(6 * two[0]["p"])
    assert two[0]["least_holm"] == pytest.approx(12 / 70)


def test_a_slope_over_conditions_of_one_arm_is_that_of_its_runs() -> None:
    """Runs differ by far more than a dose changes in any of them; of other runs' doses nothing could be told."""
    rows = [
        {"condition": f"forced_{dose}", "arm": "shy", "run": f"s{run}", "when": "after", "game": f"g{game}"}
        | {"reward": 10.0 * run + dose * (0.5 + 0.01 * run) + 0.02 * ((7 * game + dose) % 5)}
        for run in range(4)
        for dose in (0, 1, 2)
        for game in range(30)
    ]
    doses = [[dose, {"arm": "shy", "condition": f"forced_{dose}"}] for dose in (0, 1, 2)]
    spec = {"name": "dose", "measure": "reward", "doses": doses, "direction": "more"}
    manifest = Manifest.model_validate({"title": "", "sources": {"held_out": {"logs": ["x"], "command": ""}}})
    plays = ex.Plays(pd.DataFrame(rows), pd.DataFrame({"arm": [], "run": [], "step": []}))
    (row,) = ex.compare(plays, manifest, Contrasts.model_validate({"contrasts": [spec]}))
    table = pd.DataFrame(rows).groupby(["run", "condition"])["reward"].mean().unstack()
    slopes = [np.polyfit([0, 1, 2], values, 1)[0] for values in table.to_numpy()]
    assert row["by_run"] == [pytest.approx(slopes)] and row["games"] == 30
    assert row["value"] == pytest.approx(np.mean(slopes)) and 0.4 < row["low"] < row["high"] < 0.7


def test_what_is_the_opposite_is_called_so(manifest_path: Path, plays: ex.Plays) -> None:
    manifest, contrasts = load_manifest(manifest_path)
    alone = contrasts.model_copy(update={"contrasts": [contrasts.contrasts[1]]})
    (row,) = ex.compare(plays, manifest, alone)
    assert row["p_holm"] == row["p"] < 0.05 and row["found"] == "the opposite"


def test_an_evaluation_belongs_to_the_runs_whose_models_played(
    manifest_path: Path, plays: ex.Plays, compared: dict[str, dict[str, Any]]
) -> None:
    after = plays.table(Outcome(arm="shy", condition="forced_4"), "questions")
    before = plays.table(Outcome(arm="shy", condition="forced_4", when="before"), "questions")
    rise = plays.table(Outcome(arm="shy", condition="forced_4", when="change"), "questions")
    assert list(after.index) == [f"shy-{seed}" for seed in range(SEEDS)] and list(before.index) == [""]
    pd.testing.assert_series_equal(rise.loc["shy-1"], after.loc["shy-1"] - before.loc[""], check_names=False)
    start = synthetic.changed(plays.held_out, "shy", "reward", "forced_4")
    assert start["before_low"] < start["before"] < start["before_high"], "over games: there is one start"
    assert start["over"] == "seeds and games"
    row = compared["forced pays"]
    assert row["runs"] == [SEEDS] and row["games"] == GAMES and row["found"] in ("as predicted", "not shown")
    assert "No logs yet of transfer." in ex.left_out(plays, load_manifest(manifest_path)[0])


def test_arm_evaluated_only_after_training_has_no_before(plays: ex.Plays) -> None:
    rows = plays.held_out
    alone = rows[~((rows["arm"] == "mute") & (rows["when"] == "before"))]
    row = synthetic.changed(alone, "mute", "reward", "held_out")
    assert row["after"] == synthetic.changed(rows, "mute", "reward", "held_out")["after"]
    assert np.isnan(row["before"]) and np.isnan(row["value"]) and np.isnan(row["low"]) and row["by_run"] == []


def test_run_without_later_evaluation_is_not_trained(manifest_path: Path, tmp_path: Path, plays: ex.Plays) -> None:
    """What it played before its first step is its before, its training is in the curves, and the page says that the rest is missing."""
    manifest = yaml.safe_load(manifest_path.read_text())
    (whole,) = manifest["sources"]["held_out"]["logs"]
    interrupted = shutil.copytree(whole, tmp_path / "arms")
    for path in interrupted.rglob("*.jsonl"):
        lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
        lines = [line for line in lines if line["run"] != "shy-1" or line["step"] < 3]
        lines = [line | {"step": 5} if (line["run"], line["step"]) == ("shy-2", 6) else line for line in lines]
        path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    manifest["sources"]["held_out"] = {"logs": [str(interrupted)], "command": "slim-rl lab arms here"}
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    left = load_manifest(tmp_path / "experiment.yaml")[0]
    found = ex.read(left)
    shy = Outcome(arm="shy", condition="held_out")
    assert sorted(found.table(shy, "questions").index) == ["shy-0", "shy-2", "shy-3"]
    assert "shy-1" in found.table(shy.model_copy(update={"when": "before"}), "questions").index
    assert "Not evaluated after training yet, so only in the curves: shy-1." in ex.left_out(found, left)
    assert "shy-2 was evaluated last at step 5, others of its arm later." in ex.left_out(found, left)
    assert not any("Not evaluated after training" in warning for warning in ex.left_out(plays, left))


def test_a_price_is_taken_off_the_arms_own_reward(plays: ex.Plays) -> None:
    rows = plays.held_out[plays.held_out["condition"] == "held_out"]
    mute, shy = rows[rows["arm"] == "mute"], rows[rows["arm"] == "shy"]
    assert (mute["net_reward"] - mute["reward"] + 0.1 * mute["questions"]).abs().max() < 1e-9
    assert (shy["net_reward"] == shy["reward"]).all()
    forced = plays.held_out[plays.held_out["condition"] == "forced_4"].set_index(["arm", "when", "run", "game"])
    paid = forced["reward"] - forced["net_reward"]
    assert (paid.loc["mute"] - 0.4).abs().max() < 1e-9, "of its start's, too"
    assert not paid.loc["shy"].any()


WRONG = """
{measure: cleverness} => no measure cleverness
{measure: [questions, reward]} => measure
{direction: most} => direction: Input should be 'more', 'less', 'same' or 'any'
{b: null} => compares with zero
{direction: same} => margin
{a: {arm: shy, condition: moon}} => moon
{doses: [[0, shy]]} => either
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_contrast_is_one_sentence(manifest_path: Path, tmp_path: Path, line: str) -> None:
    """In a file of contrasts, and in the manifest itself."""
    change, _, words = line.partition(" => ")
    wrong, file = [CONTRASTS[0] | yaml.safe_load(change)], tmp_path / "contrasts.yaml"
    file.write_text(yaml.safe_dump({"contrasts": wrong}))
    for contrasts in (str(file), wrong):
        manifest = yaml.safe_load(manifest_path.read_text()) | {"contrasts": contrasts}
        (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
        with pytest.raises(ConfigError, match=words):
            load_manifest(tmp_path / "experiment.yaml")


def test_an_experiment_needs_its_training_runs(manifest_path: Path) -> None:
    manifest, _ = load_manifest(manifest_path)
    held_out = manifest.sources["held_out"].model_copy(update={"logs": ["none/*"]})
    nothing = manifest.model_copy(update={"sources": {"held_out": held_out}})
    with pytest.raises(DataError, match="training runs"):
        ex.read(nothing)


def test_a_measure_under_its_former_name_is_the_same_measure() -> None:
    named = Contrast(name="better", measure="value", a={"arm": "shy", "when": "change"}, direction="more")  # type: ignore[arg-type]
    assert named.measure == "question_value"
    written_down = load_section(ROOT / "analysis" / "contrasts.yaml", Contrasts)
    assert "question_value" in {contrast.measure for contrast in written_down.contrasts}


def test_a_change_is_of_the_runs_that_were_played_on_both_sides() -> None:
    played = (("s0", "before", 1.0), ("s0", "after", 1.0), ("s1", "after", 4.0), ("s2", "after", 4.0))
    rows = [(run, when, f"g{game}", value + 0.1 * game) for run, when, value in played for game in range(9)]
    games = pd.DataFrame(rows, columns=["run", "when", "game", "questions"]).assign(condition="held_out", arm="shy")
    found = synthetic.changed(games, "shy", "questions", "held_out")
    assert (found["value"], found["before"], found["after"]) == pytest.approx((0.0, 1.4, 1.4))
    assert found["by_run"] == [0.0]
    apart = games[(games["run"] != "s0") | (games["when"] != "after")]
    found = synthetic.changed(apart, "shy", "questions", "held_out")
    assert np.isnan(found["value"]) and found["by_run"] == [] and found["after"] == pytest.approx(4.4)


def test_manifest_of_another_folder_names_its_base_path(tmp_path: Path, monkeypatch: Any) -> None:
    manifest = {"title": "t", "sources": {"held_out": {"logs": ["logs"], "command": "c"}}}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "experiment.yaml").write_text(yaml.safe_dump({**manifest, "contrasts": "contrasts.yaml"}))
    (tmp_path / "mine" / "contrasts.yaml").write_text(yaml.safe_dump({"contrasts": CONTRASTS[:1]}))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"mine/experiment\.yaml names it, and its paths are relative to the working"):
        load_manifest(Path("mine/experiment.yaml"))
    monkeypatch.chdir(tmp_path / "mine")
    assert load_manifest(Path("experiment.yaml"))[1].contrasts
