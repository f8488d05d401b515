"""A measure is added by one entry in one table, and a kind of question by one entry where its game declares them; then every surface
has them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from rich.console import Console

from slim_rl.analysis import Summary, analyze, figures
from slim_rl.analysis.figure_style import style
from slim_rl.analysis.load import load
from slim_rl.analysis.report_tables import Tables
from slim_rl.analysis.terminal_tables import before_after_table, cells_table
from slim_rl.analysis.viewer import collect
from slim_rl.backends.card import model_card
from slim_rl.dialogue.log import DialogueLog, annotate, read_log
from slim_rl.dialogue.measures import MEASURES, Measure
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.tracked import batch_metrics
from slim_rl.lab.experiment.page import write
from tests.stories.backends import BACKENDS, Story
from tests.stories.games import GAME, played, speak

GASPS = Measure(
    "gasps",
    "exclamation marks a game",
    lambda d: sum(turn.text.count("!") for turn in d.own),
    unit="marks",
    better="down",
    shown=("step", "tracker", "table", "card", "first screen", "report", "experiment"),
)


@pytest.fixture(scope="module", autouse=True)
def added() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MEASURES, GASPS.name, GASPS)
        yield


STORY = Story(GAME, {"kind": "shy", "accept_fraction": 0.0}, {"n": 3}, speak)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backends_tracker_has_them(backend: Any, tokenizer: Any, tokenizer_dir: Path, tmp_path: Path) -> None:
    found = backend(STORY, tokenizer, tokenizer_dir, tmp_path)
    assert found["gasps"] == 1.0
    assert found["questions/polite"] == found["questions/pair"] == 1.0 and found["questions/process"] == 0.0


def test_the_step_line_has_the_measure(log_dir: Path) -> None:
    pytest.importorskip("trl")
    from slim_rl.backends.step_line import step_line

    assert "gasps 1.00" in step_line(1, batch_metrics(held_out(log_dir, 4)))


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns to ask: held-out games before and after training."""
    folder = tmp_path_factory.mktemp("logs")
    steps = [("eval", 0), *(("train", step) for step in range(4)), ("eval", 4)]
    with DialogueLog(folder / "log.jsonl") as log:
        for phase, step in steps:
            for number in range(6):
                log.append(played(number, phase, step, asks=step > number % 3, annotate=annotate))
    return folder


@pytest.fixture(scope="module")
def analysed(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return analyze([log_dir], tmp_path_factory.mktemp("plots"))


def held_out(log_dir: Path, step: int) -> list[Dialogue]:
    return [each for each in read_log(log_dir) if each.phase == "eval" and each.step == step]


def text_of(table: Any) -> str:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text()


def test_the_frame_of_a_log_has_them(log_dir: Path) -> None:
    log = load([log_dir])
    asked = log.frame["questions"].sum()
    assert log.frame["gasps"].sum() == log.frame["questions/polite"].sum() == asked > 0
    assert log.kinds["polite"] == "says please"


def test_terminal_tables_and_the_card_have_the_measure(log_dir: Path, tmp_path: Path) -> None:
    before, after = held_out(log_dir, 0), held_out(log_dir, 4)
    assert "exclamation marks a game" in text_of(cells_table({"after": after}, "held-out games"))
    assert "exclamation marks a game" in text_of(before_after_table(before, after))
    assert "exclamation marks a game" in model_card(STORY.config(tmp_path), step=1, results={"after training": after})


def test_the_report_has_them(log_dir: Path, analysed: Summary) -> None:
    page = analysed.report.read_text()
    assert "Exclamation marks a game" in page, "a card of the first screen"
    assert analysed.results["measures"]["gasps"]["title"] == "exclamation marks a game"
    assert analysed.results["curves"]["shy"]["measures"]["gasps"]["mean"][-1] == 1.0
    assert analysed.results["kinds"]["shy"]["shares"]["polite"][-1] == 0.5  # beside `pair`
    assert "question_kinds" in analysed.figures


def test_a_change_is_coloured_by_what_is_better(analysed: Summary) -> None:
    page = analysed.report.read_text()
    assert re.search(r'card loss"><h2>Exclamation marks', page), "there are more of them, and less is better"
    assert re.search(r'card gain"><h2>Reward', page)
    table = Tables(analysed.results).measures()
    (better,) = (column for column in table.columns if column.head == "better")
    told = {row["measure"]: better.show(row) for row in table.others}
    assert (told["errors"], told["valid_proposals"], told["words"]) == ("less", "more", "–")


def test_its_axis_has_its_unit(analysed: Summary) -> None:
    with style():
        drawn = figures.measures(analysed.results)
    assert drawn is not None
    units = {ax.get_title("left").replace("\n", " "): ax.get_ylabel() for ax in drawn.axes}
    assert units["Exclamation marks a game"] == "marks" and units["Games agreed"] == ""


def test_the_page_of_an_experiment_has_the_measure(log_dir: Path, tmp_path: Path) -> None:
    source = {"logs": [str(log_dir)], "command": "slim-rl train story"}
    manifest = {"title": "A story", "commit": "c", "machine": "m", "sources": {"held_out": source}}
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    write(tmp_path / "experiment.yaml", tmp_path / "page", "slim-rl lab page here")
    readme = (tmp_path / "page" / "README.md").read_text()
    assert "| exclamation marks a game |" in readme and "(gasps.png)" in readme
    assert pd.read_csv(tmp_path / "page" / "runs.csv")["gasps"].max() == 1.0


def test_the_viewer_has_the_kind(log_dir: Path, analysed: Summary) -> None:
    shown = collect(load([log_dir]), 100)["dialogues"]
    assert any(each["kinds"] == ["pair", "polite"] for each in shown)
    assert analysed.results["question_kinds"]["polite"] == "says please"
