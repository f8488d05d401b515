"""An experiment's page, on made-up runs whose behaviour is known."""

from __future__ import annotations

import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
import synthetic
import yaml

from slim_rl.analysis import analyze
from slim_rl.analysis import experiment as ex
from slim_rl.analysis import plays as pl
from slim_rl.analysis.contrasts import Contrast, Contrasts, Manifest, Outcome, load_manifest
from slim_rl.analysis.experiment_page import write
from slim_rl.config import load_section
from slim_rl.errors import ConfigError, DataError
from tests.paths import ROOT

SEEDS, GAMES, STEPS = 4, 30, 20
CONTRASTS: list[dict[str, Any]] = [
    {"name": "asks more", "measure": "questions", "a": "shy", "b": "mute", "direction": "more", "role": "primary"},
    {
        "name": "less, it was thought",
        "measure": "questions",
        "a": "shy",
        "b": "mute",
        "direction": "less",
        "role": "primary",
    },
    {
        "name": "rises",
        "measure": "questions",
        "a": {"arm": "shy", "when": "change"},
        "direction": "more",
        "role": "primary",
    },
    {"name": "never run", "measure": "reward", "a": "shy", "b": "yoked", "direction": "more", "role": "primary"},
    {
        "name": "dose",
        "measure": "questions",
        "doses": [[0, "mute"], [0.5, "shuffled_reward"], [1, "shy"]],
        "direction": "more",
    },
    {"name": "sooner", "measure": "questions", "a": "shy", "b": "mute", "reaches": 2, "direction": "less"},
    {
        "name": "forced pays",
        "measure": "reward",
        "a": {"arm": "shy", "condition": "forced_4"},
        "b": {"arm": "shy", "condition": "forced_4", "when": "before"},
        "direction": "same",
        "margin": 0.1,
    },
]


def evaluation(path: Path, model: str, board_seed: int = 1) -> None:
    """A log of `slim-rl evaluate`: 4 questions a game with this model."""
    boards = [synthetic.make_board(np.random.default_rng([board_seed, i]), 3) for i in range(GAMES)]
    rng = np.random.default_rng(zlib.crc32(model.encode()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for i, board in enumerate(boards):
            fields = {"id": f"e{i}", "game_id": f"g{i}", "run": path.stem, "step": 0, "phase": "eval"}
            dialogue = synthetic.make_dialogue(rng, board, 4, "shy", **fields)
            dialogue.arm, dialogue.policy = path.stem, {"model": model}
            file.write(orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n")


@pytest.fixture(scope="module")
def manifest_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment")
    arms = ("shy", "mute", "shuffled_reward")
    settings = {"steps": STEPS, "games_per_step": 4, "group": 2, "n": 3}
    synthetic.write_runs(folder / "arms", arms=arms, seeds=SEEDS, eval_games=GAMES, **settings)
    for model in ("tiny", *(f"runs/shy-{seed}/model" for seed in range(SEEDS))):
        evaluation(folder / "forced" / f"{Path(model).parent.name or model}_forced4.jsonl", model)
    (folder / "text.md").write_text("## What it shows\n\nNothing; it is *made up*. <script>no</script>\n")
    (folder / "contrasts.yaml").write_text(yaml.safe_dump({"contrasts": CONTRASTS}))
    manifest = {
        "title": "Made-up runs",
        "contrasts": str(folder / "contrasts.yaml"),
        "commit": "abc1234",
        "machine": "no machine",
        "text": str(folder / "text.md"),
        "prices": {"mute": 0.1},
        "measures": ["questions", "reward", "net_reward", "best_known", "malformed_share"],
        "sources": {
            "held_out": {"logs": [str(folder / "arms")], "command": "slim-rl arms here"},
            "forced_4": {"logs": [str(folder / "forced" / "*_forced4.jsonl")], "command": "slim-rl evaluate here"},
            "transfer": {"logs": [str(folder / "not_yet")], "command": "slim-rl evaluate later"},
        },
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    return folder / "experiment.yaml"


@pytest.fixture(scope="module")
def plays(manifest_path: Path) -> pl.Plays:
    return ex.read(load_manifest(manifest_path)[0])


@pytest.fixture(scope="module")
def compared(manifest_path: Path, plays: pl.Plays) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in ex.compare(plays, *load_manifest(manifest_path))}


@pytest.fixture(scope="module")
def written(manifest_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The page's folder, and what was said."""
    folder = tmp_path_factory.mktemp("page")
    return folder, write(manifest_path, folder, "slim-rl results here")


def test_all_that_was_written_down_is_shown_and_nothing_else(compared: dict[str, dict[str, Any]]) -> None:
    assert list(compared) == [contrast["name"] for contrast in CONTRASTS]
    assert compared["never run"]["found"] == compared["never run"]["note"] == "not run"


def test_what_was_chosen_after_looking_was_not_predicted(manifest_path: Path, plays: pl.Plays) -> None:
    manifest, contrasts = load_manifest(manifest_path)
    explored = ex.compare(plays, manifest.model_copy(update={"preregistered": False}), contrasts)
    found = {row["name"]: row["found"] for row in explored}
    assert found["dose"] == "shown" and "as predicted" not in found.values()


def test_contrasts_are_those_of_the_made_up_arms(compared: dict[str, dict[str, Any]]) -> None:
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
    assert compared["sooner"]["value"] < 0 and compared["sooner"]["note"] == "4 of 8 runs never reach it"
    assert np.isnan(compared["sooner"]["low"]) or compared["sooner"]["low"] < 0
    assert compared["sooner"]["over"] == "seeds" and more["over"] == "seeds and games"


def test_what_is_the_opposite_is_called_so(manifest_path: Path, plays: pl.Plays) -> None:
    manifest, contrasts = load_manifest(manifest_path)
    alone = contrasts.model_copy(update={"contrasts": [contrasts.contrasts[1]]})
    (row,) = ex.compare(plays, manifest, alone)
    assert row["p_holm"] == row["p"] < 0.05 and row["found"] == "the opposite"


def test_an_evaluation_belongs_to_the_runs_whose_models_played(
    plays: pl.Plays, compared: dict[str, dict[str, Any]]
) -> None:
    after = plays.table(Outcome(arm="shy", condition="forced_4"), "questions")
    before = plays.table(Outcome(arm="shy", condition="forced_4", when="before"), "questions")
    change = plays.table(Outcome(arm="shy", condition="forced_4", when="change"), "questions")
    assert list(after.index) == [f"shy-{seed}" for seed in range(SEEDS)] and list(before.index) == [""]
    pd.testing.assert_series_equal(change.loc["shy-1"], after.loc["shy-1"] - before.loc[""], check_names=False)
    start = pl.change(plays, "shy", "reward", "forced_4")
    assert start["before_low"] < start["before"] < start["before_high"], "over games: there is one start"
    assert start["over"] == "seeds and games"
    row = compared["forced pays"]
    assert row["runs"] == [SEEDS] and row["games"] == GAMES and row["found"] in ("as predicted", "not shown")
    assert "No logs yet of transfer." in plays.warnings


def test_an_arm_that_was_played_only_after_training_has_no_before(plays: pl.Plays) -> None:
    rows = plays.held_out
    alone = replace(plays, held_out=rows[~((rows["arm"] == "mute") & (rows["when"] == "before"))])
    row = pl.change(alone, "mute", "reward", "held_out")
    assert row["after"] == pl.change(plays, "mute", "reward", "held_out")["after"]
    assert np.isnan(row["before"]) and np.isnan(row["value"]) and np.isnan(row["low"]) and row["by_run"] == []


def test_a_price_is_taken_off_the_arms_own_reward(plays: pl.Plays) -> None:
    rows = plays.held_out[plays.held_out["condition"] == "held_out"]
    mute, shy = rows[rows["arm"] == "mute"], rows[rows["arm"] == "shy"]
    assert (mute["net_reward"] - mute["reward"] + 0.1 * mute["questions"]).abs().max() < 1e-9
    assert (shy["net_reward"] == shy["reward"]).all()


def test_the_first_step_that_reaches_a_level() -> None:
    steps = pd.DataFrame(
        {"arm": "a", "run": ["x"] * 4 + ["y"] * 4, "step": [0, 1, 2, 3] * 2, "questions": [0, 1, 1, 2, 0, 0, 0, 0]}
    )
    got = pl.Plays(pd.DataFrame(), steps.astype({"step": float})).first_steps("a", "questions", 1.0, window=2)
    assert got["step"].to_dict() == {"x": 2.0, "y": 4.0}


def test_page_readme_and_tables_say_the_same(written: tuple[Path, list[str]]) -> None:
    folder, said = written
    page, readme = ((folder / name).read_text(encoding="utf-8") for name in ("results.html", "README.md"))
    assert said[0].startswith("It learned to ask")
    assert "by each of 4 seeds" in said[2] and "one more seed is expected" in said[2]
    for text in (page, readme):
        for part in (
            *said[:2],
            "abc1234",
            "no machine",
            "slim-rl arms here",
            "asks more",
            "never run",
            "seeds 0, 1, 2, 3",
        ):
            assert part in text, part
    assert "<em>made up</em>" in page and "<script" not in page
    for name in ("primary", "arms", "questions", "doses", "forced", "baseline"):
        assert (folder / f"{name}.png").stat().st_size > 1000 and f"({name}.png)" in readme
    runs = pd.read_csv(folder / "runs.csv")
    shy = runs[(runs["arm"] == "shy") & (runs["condition"] == "held_out") & (runs["when"] == "after")]
    numbers = orjson.loads((folder / "results.json").read_bytes())
    row = next(
        r for r in numbers["arms"] if (r["arm"], r["measure"], r["condition"]) == ("shy", "questions", "held_out")
    )
    assert len(shy) == SEEDS and shy["questions"].mean() == pytest.approx(row["after"])
    assert shy["seed"].tolist() == list(range(SEEDS))


def test_what_made_the_logs_is_read_where_the_manifest_does_not_say_it(manifest_path: Path, tmp_path: Path) -> None:
    arms = Path(yaml.safe_load(manifest_path.read_text())["sources"]["held_out"]["logs"][0])
    manifest = {
        "title": "one",
        "sources": {"held_out": {"logs": [str(tmp_path / "arms")], "command": "slim-rl arms here"}},
    }
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    shutil.copytree(arms, tmp_path / "arms")
    folders = sorted(path for path in (tmp_path / "arms").iterdir() if path.is_dir())
    made = [
        {"commit": "abc", "clean": True, "machine": {"cores": 2, "processor": "an Abacus"}},
        {"commit": "def", "clean": True},
    ]
    for folder, entry in zip(folders, made, strict=False):
        (folder / "provenance.json").write_bytes(orjson.dumps([entry]))
    write(tmp_path / "experiment.yaml", tmp_path / "page", "slim-rl results here")
    readme = (tmp_path / "page" / "README.md").read_text(encoding="utf-8")
    assert "commit abc; 2 cores of an Abacus, no GPU and commit def" in readme
    assert "written by several versions of the code: commit abc; commit def." in readme
    assert (tmp_path / "page" / "provenance.json").exists()


def test_a_page_is_made_again_from_its_values_alone(
    manifest_path: Path, written: tuple[Path, list[str]], tmp_path: Path
) -> None:
    first, said = written
    manifest = yaml.safe_load(manifest_path.read_text())
    for source in manifest["sources"].values():
        source["logs"] = [str(tmp_path / "nowhere")]
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    assert write(tmp_path / "experiment.yaml", tmp_path / "again", "slim-rl results here", first) == said
    assert (tmp_path / "again" / "README.md").read_bytes() == (first / "README.md").read_bytes()
    for name in ("runs.csv", "contrasts.csv"):
        pd.testing.assert_frame_equal(*(pd.read_csv(made / name) for made in (tmp_path / "again", first)))
    games = pd.read_parquet(first / "held_out.parquet")
    shy = games[(games["arm"] == "shy") & (games["condition"] == "held_out") & (games["when"] == "after")]
    assert (
        shy["run"].nunique() == SEEDS
        and len(shy) > 0.9 * SEEDS * GAMES
        and {"reward", "questions", "lost_by_choice"} <= set(shy)
    )
    assert "The ledger of asking" in (tmp_path / "again" / "results.html").read_text(encoding="utf-8")
    with pytest.raises(DataError, match="does not hold the values"):
        write(tmp_path / "experiment.yaml", tmp_path / "again", "slim-rl results here", tmp_path)


def test_one_run_is_an_experiment_without_contrasts(manifest_path: Path, tmp_path: Path) -> None:
    manifest = yaml.safe_load(manifest_path.read_text())
    logs = str(Path(manifest["sources"]["held_out"]["logs"][0]) / "shy-0")
    del manifest["contrasts"], manifest["text"]
    manifest["sources"] = {"held_out": {"logs": [logs], "command": "slim-rl train here"}}
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    said = write(tmp_path / "experiment.yaml", tmp_path / "page", "slim-rl results here")
    report = analyze([logs], tmp_path / "report", max_dialogues=0)
    assert said == report.results["verdict"][0]["sentences"], "the report on its logs says the same"
    readme = (tmp_path / "page" / "README.md").read_text(encoding="utf-8")
    assert said[0] in readme and "ontrasts" not in readme and "| games |" in readme, "its intervals are over games"
    assert not (tmp_path / "page" / "primary.png").exists() and (tmp_path / "page" / "reward.png").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"measure": "cleverness"}, "no measure cleverness"),
        ({"b": None}, "compares with zero"),
        ({"direction": "same"}, "margin"),
        ({"a": {"arm": "shy", "condition": "moon"}}, "moon"),
        ({"doses": [[0, "shy"]]}, "either"),
    ],
)
def test_a_wrong_contrast_is_one_sentence(manifest_path: Path, tmp_path: Path, change: dict, words: str) -> None:
    manifest = yaml.safe_load(manifest_path.read_text())
    (tmp_path / "contrasts.yaml").write_text(yaml.safe_dump({"contrasts": [{**CONTRASTS[0], **change}]}))
    (tmp_path / "experiment.yaml").write_text(
        yaml.safe_dump({**manifest, "contrasts": str(tmp_path / "contrasts.yaml")})
    )
    with pytest.raises(ConfigError, match=words):
        load_manifest(tmp_path / "experiment.yaml")


def test_an_experiment_needs_its_training_runs(manifest_path: Path) -> None:
    manifest, _ = load_manifest(manifest_path)
    nothing = Manifest.model_validate(
        {**manifest.model_dump(), "sources": {"held_out": {"logs": ["none/*"], "command": ""}}}
    )
    with pytest.raises(DataError, match="training runs"):
        ex.read(nothing)


def test_the_projects_own_manifest_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    manifest, contrasts = load_manifest(ROOT / "analysis" / "experiment.yaml")
    primary = [contrast for contrast in contrasts.contrasts if contrast.role == "primary"]
    assert manifest.treatment == "shy" and 1 < len(primary) < 12


@pytest.mark.parametrize(
    ("manifest", "results"),
    [("experiment.yaml", "results"), ("confirmation/experiment.yaml", "results/confirmation")],
)
def test_the_committed_contrasts_follow_from_the_committed_values(
    manifest: str, results: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    folder = ROOT / "analysis" / results
    found = ex.compare(pl.Plays.read(folder), *load_manifest(Path("analysis", manifest)))
    said = pd.read_csv(folder / "contrasts.csv").set_index("name")
    for row in found:
        numbers = said.loc[row["name"]]
        for key in ("value", "low", "high", "p"):
            assert row[key] == pytest.approx(numbers[key], rel=1e-6, nan_ok=True), (row["name"], key)


def test_a_measure_under_its_former_name_is_the_same_measure() -> None:
    named = Contrast(name="better", measure="value", a={"arm": "shy", "when": "change"}, direction="more")  # type: ignore[arg-type]
    assert named.measure == "question_value"
    written_down = load_section(ROOT / "analysis" / "contrasts.yaml", Contrasts)
    assert "question_value" in {contrast.measure for contrast in written_down.contrasts}
