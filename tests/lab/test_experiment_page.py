"""The page, the README and the tables of an experiment, on made-up runs."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
import yaml

from slim_rl.analysis import analyze
from slim_rl.errors import DataError
from slim_rl.lab.experiment import results as pl
from slim_rl.lab.experiment.contrasts import Contrast, Contrasts, Outcome
from slim_rl.lab.experiment.figures import PLOTS
from slim_rl.lab.experiment.page import write
from tests.lab.conftest import GAMES, SEEDS

pytestmark = pytest.mark.usefixtures("few_draws")


@pytest.fixture(scope="module")
def written(manifest_path: Path, few_draws: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The page's folder, and what was said."""
    folder = tmp_path_factory.mktemp("page")
    return folder, write(manifest_path, folder, "slim-rl lab page here")


def test_page_readme_and_tables_say_the_same(written: tuple[Path, list[str]]) -> None:
    folder, said = written
    page, readme = ((folder / name).read_text(encoding="utf-8") for name in ("results.html", "README.md"))
    assert said[0] == "0 of 4 primary contrasts as predicted."
    assert said[1:3] == ["Not shown: asks more; less, it was thought; rises.", "Not run: never run."]
    assert said[3].startswith("It learned to ask")
    assert "by each of 4 seeds" in said[5] and "predicted change of questions for one more seed" in said[5]
    for text in (page, readme):
        origin = ("abc1234", "no machine", "slim-rl lab arms here", "--mode forced:4", "seeds 0, 1, 2, 3")
        assert [part for part in (*said[:2], "asks more", "never run", *origin) if part not in text] == []
    assert "<em>made up</em>" in page and "<script" not in page
    for name in ("training", "arms", "baseline", "frontier"):
        assert (folder / f"{name}.png").stat().st_size > 1000 and f"({name}.png)" in readme
    runs = pd.read_csv(folder / "runs.csv")
    shy = runs[(runs["arm"] == "shy") & (runs["condition"] == "held_out") & (runs["when"] == "after")]
    numbers = orjson.loads((folder / "results.json").read_bytes())
    wanted = {"arm": "shy", "measure": "questions", "condition": "held_out"}
    row = next(row for row in numbers["arms"] if wanted.items() <= row.items())
    assert len(shy) == SEEDS and shy["questions"].mean() == pytest.approx(row["after"])
    assert shy["seed"].tolist() == list(range(SEEDS))


@pytest.mark.usefixtures("unprinted")
def test_page_reads_origin_from_provenance_of_logs(manifest_path: Path, tmp_path: Path) -> None:
    arms = Path(yaml.safe_load(manifest_path.read_text())["sources"]["held_out"]["logs"][0])
    source = {"logs": [str(tmp_path / "arms")], "command": "slim-rl lab arms here"}
    manifest = {"title": "one", "sources": {"held_out": source}}
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    shutil.copytree(arms, tmp_path / "arms")
    folders = sorted(path for path in (tmp_path / "arms").iterdir() if path.is_dir())
    first = {"commit": "abc", "clean": True, "machine": {"cores": 2, "processor": "an Abacus"}}
    for folder, entry in zip(folders, (first, {"commit": "def", "clean": True}), strict=False):
        (folder / "provenance.json").write_bytes(orjson.dumps([entry]))
    write(tmp_path / "experiment.yaml", tmp_path / "page", "slim-rl lab page here")
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
    whole, machines = pl.Plays.read(first), [tmp_path / "one", tmp_path / "other"]
    for machine, of_shy in zip(machines, (True, False), strict=True):
        games = whole.held_out[(whole.held_out["run"] == "") | ((whole.held_out["arm"] == "shy") == of_shy)]
        trained = whole.training[(whole.training["arm"] == "shy") == of_shy]
        replace(whole, held_out=games, training=trained).write(machine)
    assert write(tmp_path / "experiment.yaml", tmp_path / "again", "slim-rl lab page here", [*machines, first]) == said
    assert (tmp_path / "again" / "README.md").read_bytes() == (first / "README.md").read_bytes()
    for name in ("runs.csv", "contrasts.csv"):
        pd.testing.assert_frame_equal(*(pd.read_csv(made / name) for made in (tmp_path / "again", first)))
    games = pd.read_parquet(first / "held_out.parquet")
    shy = games[(games["arm"] == "shy") & (games["condition"] == "held_out") & (games["when"] == "after")]
    assert shy["run"].nunique() == SEEDS and len(shy) > 0.9 * SEEDS * GAMES
    assert {"reward", "questions", "lost_by_choice"} <= set(shy)
    assert "Gap to the ideal asker" in (tmp_path / "again" / "results.html").read_text(encoding="utf-8")
    assert (tmp_path / "again" / "frontier.png").read_bytes() == (first / "frontier.png").read_bytes()
    (first / "askers.parquet").rename(tmp_path / "askers.parquet")
    assert pl.Plays.read(first).askers.empty, "a folder that an older version wrote"
    (tmp_path / "askers.parquet").rename(first / "askers.parquet")
    with pytest.raises(DataError, match="does not hold the values"):
        write(tmp_path / "experiment.yaml", tmp_path / "again", "slim-rl lab page here", [tmp_path])


@pytest.mark.usefixtures("unprinted")
def test_page_without_before_is_headed_by_primary_contrasts(
    manifest_path: Path, written: tuple[Path, list[str]], tmp_path: Path
) -> None:
    manifest = yaml.safe_load(manifest_path.read_text()) | {"treatment": "nobody"}
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    said, *others = write(tmp_path / "experiment.yaml", tmp_path / "page", "slim-rl lab page here", [written[0]])
    rows = orjson.loads((tmp_path / "page" / "results.json").read_bytes())["contrasts"]
    found = [row["found"] for row in rows if row["role"] == "primary"]
    assert said.startswith(f"{found.count('as predicted')} of {len(found)} primary contrasts as predicted")
    assert len(others) == len({*found} - {"as predicted"})


@pytest.mark.usefixtures("unprinted")
def test_page_of_started_runs_states_only_that(manifest_path: Path, tmp_path: Path) -> None:
    manifest = yaml.safe_load(manifest_path.read_text())
    (whole,) = manifest["sources"]["held_out"]["logs"]
    for path in Path(whole).rglob("*.jsonl"):
        lines = [line for line in path.read_bytes().splitlines(keepends=True) if orjson.loads(line)["phase"] == "train"]
        (tmp_path / path.parent.name).mkdir()
        (tmp_path / path.parent.name / path.name).write_bytes(b"".join(lines))
    source = {"logs": [str(tmp_path)], "command": ""}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"title": "", "sources": {"held_out": source}}))
    said = write(tmp_path / "one.yaml", tmp_path / "page", "")
    assert said == ["No run of shy was played before and after training."]
    page = (tmp_path / "page" / "README.md").read_text()
    assert "\n0 runs; " in page and "so only in the curves: " in page and "No logs yet" not in page


@pytest.mark.usefixtures("unprinted")
def test_one_run_is_an_experiment_without_contrasts(manifest_path: Path, tmp_path: Path) -> None:
    manifest = yaml.safe_load(manifest_path.read_text())
    logs = str(Path(manifest["sources"]["held_out"]["logs"][0]) / "shy-0")
    del manifest["contrasts"], manifest["text"]
    manifest["sources"] = {"held_out": {"logs": [logs], "command": "slim-rl train here"}}
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    said = write(tmp_path / "experiment.yaml", tmp_path / "page", "slim-rl lab page here")
    report = analyze([logs], tmp_path / "report", max_dialogues=0)
    assert said == report.results["verdict"][0]["sentences"], "the report on its logs says the same"
    readme = (tmp_path / "page" / "README.md").read_text(encoding="utf-8")
    assert said[0] in readme and "ontrasts" not in readme and "| games |" in readme, "its intervals are over games"
    assert (tmp_path / "page" / "training.png").exists()


def lines(ax: Any) -> dict[str, np.ndarray]:
    """What is drawn: label -> (points, 2)."""
    return {str(line.get_label()): np.column_stack([line.get_xdata(), line.get_ydata()]) for line in ax.lines}


def test_frontier_compares_trained_simulated_and_decoding() -> None:
    price, curves = 0.1, {"random": [0.5, 0.6, 0.65, 0.66], "greedy": [0.5, 0.7, 0.75, 0.76]}
    askers = [
        {"asker": name, "questions": float(k), "net_reward": reward - price * k, "low": 0.0, "high": 1.0}
        for name, rewards in curves.items()
        for k, reward in enumerate(rewards)
    ]
    askers.append({"asker": "ideal", "questions": 1.2, "net_reward": 0.61, "low": 0.0, "high": 1.0})

    def row(arm: str, run: str, when: str, questions: float, reward: float, condition: str = "held_out") -> dict:
        played = {"condition": condition, "arm": arm, "run": run, "when": when, "game": "g"}
        return {**played, "questions": questions, "informative_pairs": questions, "reward": reward}

    rows = [
        row("turn", "turn-s0", "after", 2, 0.9),
        row("asks", "asks-s1", "after", 1, 0.8),
        row("asks", "asks-s2", "after", 2, 0.85),
        row("asks", "", "before", 0.5, 0.55),
        row("turn", "", "before", 3, 0.64, "forced_2"),
        *(row("asks", "", "before", k, 0.5 + 0.05 * k, f"forced_{k}") for k in (2, 1)),
    ]
    plays = pl.Plays(pd.DataFrame(rows), askers=pd.DataFrame(askers).assign(price=price, games=1), treatment="asks")
    assert plays.arms == ["asks", "turn"], "the treatment first, whatever it is called"
    none = Contrasts.model_construct(contrasts=[])
    drawn = lines(PLOTS["frontier"].draw(plays, none, []).axes[0])
    assert drawn["random questions"][:, 1] == pytest.approx([0.5, 0.5, 0.45, 0.36])
    assert drawn["best questions"][1].tolist() == pytest.approx([1, 0.6])
    assert drawn["ideal asker"].tolist() == [[1.2, 0.61]]
    assert set(drawn["no questions"][:, 1]) == {0.5}
    assert drawn["initial policy, forced questions"].tolist() == pytest.approx(np.array([[1, 0.45], [2, 0.4]]))
    assert drawn["initial policy"].tolist() == pytest.approx(np.array([[0.5, 0.5]]))
    assert sorted(drawn["asks"].tolist()) == pytest.approx(np.array([[1, 0.7], [2, 0.65]]))
    assert drawn["turn"].tolist() == pytest.approx(np.array([[2, 0.7]]))
    assert PLOTS["frontier"].draw(replace(plays, askers=pd.DataFrame()), none, []) is None
    net = Contrast(name="earns", measure="net_reward", a=Outcome(arm="asks"), b=0.5, direction="more", role="primary")
    compared = lines(PLOTS["frontier"].draw(plays, Contrasts.model_construct(contrasts=[net]), []).axes[0])
    assert len(compared["trained (one dot per run)"]) == 2, "an arm without a contrast may play another game"
    alone = lines(PLOTS["baseline"].draw(plays, none, []).axes[0])
    assert alone["initial policy, forced questions"].tolist() == pytest.approx(np.array([[1, 0.55], [2, 0.6]]))
    assert len(alone["trained (one dot per run)"]) == 2, "of the treatment"
