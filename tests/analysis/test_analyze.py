"""The whole way from log folders to files, and the command."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from slim_rl.analysis import Summary, analyze
from slim_rl.analysis.figures import PLOTS
from slim_rl.analysis.load import load
from slim_rl.analysis.page import write_figures
from slim_rl.analysis.references import reference_lines
from slim_rl.analysis.summary import summarise
from slim_rl.analysis.tables import Table, as_latex, prose
from slim_rl.errors import DataError
from slim_rl.games.matching.references import people
from tests.analysis import synthetic
from tests.paths import ROOT

SCRIPT = ROOT / "analysis" / "analyze_questions.py"
HUMAN_GAMES = ROOT.parent / "shared" / "dialop_human" / "optimization.jsonl"


def test_files_are_written_whole(analysed: Summary) -> None:
    folder = analysed.report.parent
    assert {path.name for path in folder.iterdir()} == {"report.html", "summary.json"} | {
        f"{name}.{kind}" for name in analysed.figures for kind in ("png", "svg")
    }
    assert set(analysed.figures) == {
        "training", "reward_by_questions", "frontier", "question_kinds", "stop_reasons", "measures",
    }  # fmt: skip
    for path in analysed.figures.values():
        assert path.read_bytes().startswith(b"\x89PNG")
        assert "<svg" in path.with_suffix(".svg").read_text()


def test_the_summary_is_strict_json_with_its_origin(analysed: Summary, log_dir: Path) -> None:
    text = analysed.summary.read_text(encoding="utf-8")
    summary = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    lines = {str(path): len(path.read_text().splitlines()) for path in log_dir.rglob("*.jsonl")}
    assert {file["path"]: file["lines"] for file in summary["files"]} == lines
    assert summary["counts"]["dialogues"] == sum(lines.values())
    assert summary["command"] == "analyze <these> & those"
    assert summary["seed"] == 0
    assert summary["version"]


def test_references_lie_in_their_order(analysed: Summary) -> None:
    reward = {name: part["reward"]["value"] for name, part in analysed.results["references"].items()}
    assert reward["random"] < reward["solo"] < reward["pooled_optimal"] == 1.0
    greedy, random = (analysed.results["frontier"][name]["mean"] for name in ("greedy", "random"))
    assert greedy[0] == random[0] == pytest.approx(reward["solo"])
    assert greedy[1] > greedy[0] and random[1] > random[0]
    assert greedy[-1] == random[-1] == pytest.approx(1.0)


def test_a_log_of_held_out_games_alone(tmp_path: Path) -> None:
    synthetic.write_runs(tmp_path / "logs", arms=("shy",), seeds=1, steps=0, n=3, eval_games=5)
    summary = analyze([tmp_path / "logs"], tmp_path / "plots")
    assert "training" not in summary.figures
    assert "Held-out games" in summary.report.read_text(encoding="utf-8")


@pytest.mark.usefixtures("unprinted")
def test_report_of_other_logs_needs_overwrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, name in enumerate(("make_run", "mine")):
        synthetic.write_runs(tmp_path / "logs" / name, arms=("shy",), seeds=1, steps=0, n=3, eval_games=2, seed=seed)
    monkeypatch.chdir(tmp_path)
    report = analyze(["logs/make_run"], "plots", max_dialogues=0).report
    before = report.read_bytes()
    for others in (["logs/mine"], ["logs"], ["logs/make_run", "logs/mine"]):
        with pytest.raises(DataError, match=r"^plots holds a report on other logs\. .*--overwrite.*\.$"):
            analyze(others, "plots")
    assert report.read_bytes() == before
    monkeypatch.chdir("logs")  # the same logs again, from wherever, and with more in them
    synthetic.write_runs(Path("make_run"), arms=("mute",), seeds=1, steps=0, n=3, eval_games=2)
    assert len(analyze([tmp_path / "logs" / "make_run"], "../plots", max_dialogues=0).results["arms"]) == 2
    analyze(["mine"], "../plots", max_dialogues=0, overwrite=True)
    analyze(["mine"], "../plots", max_dialogues=0)


def test_report_without_stamp_needs_overwrite(log_dir: Path, tmp_path: Path) -> None:
    for name, text in (("report.html", "<!doctype html>"), ("summary.json", "[]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match="other logs"):
            analyze([log_dir], tmp_path)


def test_missing_logs_are_reported_before_existing_report(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("of something else")
    with pytest.raises(DataError, match="There is no dialogue log"):
        analyze([tmp_path / "nowhere"], tmp_path)


def test_no_figure_of_the_report_before_is_left(analysed: Summary, tmp_path: Path) -> None:
    shutil.copytree(analysed.report.parent, tmp_path / "plots")
    assert (tmp_path / "plots" / "training.png").exists()
    synthetic.write_runs(tmp_path / "logs", arms=("shy",), seeds=1, steps=0, n=3, eval_games=5)
    analyze([tmp_path / "logs"], tmp_path / "plots", max_dialogues=0, overwrite=True)
    assert not (tmp_path / "plots" / "training.png").exists()


@pytest.mark.skipif(not HUMAN_GAMES.exists(), reason="DialOp's human games are not here")
def test_people_reach_what_the_recorded_games_say() -> None:
    reward = reference_lines([], HUMAN_GAMES)["human"]["reward"]
    assert (round(reward["value"], 3), reward["n"]) == (0.921, 134)


@pytest.mark.parametrize("content", ["", "not json", '{"reward": 1}'])
def test_another_file_for_the_human_games_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "games.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=r"optimization\.jsonl"):
        people(path, [])


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"}
    )


def test_the_command_makes_the_same_of_the_same_logs(log_dir: Path, analysed: Summary, tmp_path: Path) -> None:
    done = run("--log_dir", log_dir, "--output_dir", tmp_path, "--max_dialogues", "60")
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "report.html") in done.stdout
    first, again = (json.loads((folder / "summary.json").read_text()) for folder in (analysed.report.parent, tmp_path))
    assert (
        again.pop("command")
        == f"analysis/analyze_questions.py --log_dir {log_dir} --output_dir {tmp_path} --max_dialogues 60"
    )
    first.pop("command")
    (log,), (same,) = first.pop("logs"), again.pop("logs")  # as seen from each folder
    assert (analysed.report.parent / log).resolve() == (tmp_path / same).resolve() == log_dir.resolve()
    assert again == first
    for name in ("training.svg", "frontier.svg", "measures.svg"):
        assert (tmp_path / name).read_bytes() == (analysed.report.parent / name).read_bytes()


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command in this process, which has its libraries loaded: what it says as it ends with 1."""

    def run(*arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        assert ended.value.code == 1
        return capsys.readouterr().err

    return run


def test_the_command_refuses_the_folder_of_another_report(refused: Any, analysed: Summary, log_dir: Path) -> None:
    said = refused("--log_dir", next(log_dir.rglob("*.jsonl")), "--output_dir", analysed.report.parent)
    assert said.count("\n") == 1 and "--overwrite" in said


def test_the_command_says_what_is_wrong_in_one_line(refused: Any, tmp_path: Path) -> None:
    said = refused("--log_dir", tmp_path / "nowhere", "--output_dir", tmp_path)
    assert said.startswith("There is no dialogue log") and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_tables_and_figures_for_a_paper(analysed: Summary, tmp_path: Path) -> None:
    synthetic.write_runs(tmp_path / "logs", arms=("mute", "shy"), seeds=1, steps=4, n=3, eval_games=8)
    summary = analyze([tmp_path / "logs"], tmp_path, max_dialogues=0, paper=True)
    for name in summary.figures:
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert not list(analysed.report.parent.glob("*.pdf")) + list(analysed.report.parent.glob("table-*"))
    tables = sorted(tmp_path.glob("table-*.csv"))
    assert len(tables) >= 4
    rows = pd.concat([pd.read_csv(path, dtype=str) for path in tables])
    row = next(r for r in summary.results["held_out"] if (r["arm"], r["measure"]) == ("shy", "questions"))
    assert any(f"{row['before']:.3g}" in str(cell) for cell in rows.to_numpy().ravel())
    for path in tables:
        latex = path.with_suffix(".tex").read_text(encoding="utf-8")
        assert "\\toprule" in latex and "\\bottomrule" in latex and not set("−→±–×") & set(latex)
        markdown = path.with_suffix(".md").read_text(encoding="utf-8")
        assert markdown.startswith("| ") and markdown.count("\n") == len(pd.read_csv(path)) + 1, "folded rows too"
    (tmp_path / "table-99.tex").write_text("my own")
    analyze([tmp_path / "logs" / "shy-0"], tmp_path, max_dialogues=0, overwrite=True)
    left = [path.name for form in ("pdf", "csv", "tex", "md") for path in tmp_path.glob(f"*.{form}")]
    assert left == ["table-99.tex"], "of other logs, beside a report that says nothing of them"


def test_a_caption_of_any_signs_is_one_in_latex() -> None:
    table = Table(r"runs/a_1 & 50% of {each} ~/b^2 \n", [prose("name")], [{"name": "x"}])
    caption = next(line for line in as_latex(table).splitlines() if "caption" in line)
    assert caption == (
        r"\caption{runs/a\_1 \& 50\% of \{each\} \textasciitilde{}/b\textasciicircum{}2 \textbackslash{}n}"
    )


def test_a_users_matplotlibrc_changes_no_figure(log_dir: Path, tmp_path: Path) -> None:
    import matplotlib

    results = summarise(load([log_dir]).frame)
    plots = {"training": PLOTS["training"]}
    (own,) = write_figures(tmp_path / "own", plots, results, first="", forms=("png",))
    with matplotlib.rc_context({"text.usetex": True, "font.size": 30}):
        (users,) = write_figures(tmp_path / "users", plots, results, first="", forms=("png",))
        assert matplotlib.rcParams["text.usetex"]  # left as it was
    assert users.svg == own.svg
