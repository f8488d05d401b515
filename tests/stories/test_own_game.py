"""A custom game for two is one file, and a measure one entry of one table: every backend, table, figure and page has both."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from slim_rl.analysis import Summary, analyze, figures, report
from slim_rl.analysis.dialogues import collect
from slim_rl.analysis.figures import style
from slim_rl.analysis.load import load
from slim_rl.analysis.report import answer
from slim_rl.backends.card import model_card
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.measures import MEASURES, Measure, batch_metrics
from slim_rl.dialogue.record import Dialogue
from slim_rl.lab.experiment.page import write
from tests.commands.shell import run
from tests.made import blank_figures
from tests.stories.backends import BACKENDS, GAME, STORY
from tests.stories.conftest import GAMES, STEPS

MARKS = Measure(
    "marks",
    "question marks per game",
    lambda d: sum(turn.text.count("?") for turn in d.policy_turns),
    unit="marks",
    better="down",
    shown=("step", "tracker", "table", "card", "first screen", "report", "experiment"),
)


@pytest.fixture(scope="module", autouse=True)
def added() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MEASURES, MARKS.name, MARKS)
        blank_figures(patch)
        yield


@pytest.fixture(scope="module")
def analysed(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return analyze([log_dir], tmp_path_factory.mktemp("plots"))


def held_out(log_dir: Path, step: int) -> list[Dialogue]:
    return [each for each in read_log(log_dir) if each.phase == "eval" and each.step == step]


def side_of(dialogue: Any) -> str:
    return "high" if dialogue.game_state["position"] > 2 else "low"


@pytest.mark.parametrize("backend", BACKENDS)
def test_tracker_of_every_backend_has_kinds_and_measure(backend: Any, tokenizer: Any, tmp_path: Path) -> None:
    found = backend(STORY, tokenizer, tmp_path)
    assert found["questions/parity"] == found["questions/half"] == 1.0 and found["questions"] == found["marks"] == 2.0
    assert "questions/pair" not in found


def test_log_has_kinds_and_columns(log_dir: Path) -> None:
    for dialogue in held_out(log_dir, STEPS):
        assert (dialogue.environment, dialogue.reward, len(dialogue.turns)) == (GAME, 1.0, 5)
        assert [turn.questions for turn in dialogue.turns if turn.role == "policy"] == [["parity"], ["half"], []]
        assert dialogue.columns == {"position": dialogue.game_state["position"], "side": side_of(dialogue)}


def test_frame_has_kinds_columns_and_measure(log_dir: Path) -> None:
    log, logged = load([log_dir]), list(read_log(log_dir))
    assert log.kinds == {"parity": "odd or even", "half": "high or low"}
    assert log.frame["questions/half"].tolist() == [0] * GAMES + [1] * GAMES * (STEPS + 1)
    assert log.frame["marks"].tolist() == log.frame["questions"].tolist()
    assert log.frame["position"].tolist() == [each.columns["position"] for each in logged]
    assert log.frame["side"].tolist() == [side_of(each) for each in logged]


def test_show_selects_by_columns_and_prints_kinds(log_dir: Path) -> None:
    def shown(where: str) -> str:
        return run("show", log_dir, "--where", where, "--game", GAME)

    found = shown("side == 'high' and position > 0 and questions > 1")
    assert f"of {GAMES * (STEPS + 2)} dialogues" in found and "policy> Is it odd?   (parity, 11 tokens)" in found
    assert set(re.findall(r"policy> (\d+)", found)) <= {"3", "4"}
    assert f"0 of {GAMES * (STEPS + 2)} dialogues" in shown("position > 4")


def test_step_line_tables_and_card_have_the_measure(log_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from slim_rl.backends.step_line import step_line

    before, after = held_out(log_dir, 0), held_out(log_dir, STEPS)
    assert "marks 2.00" in step_line(1, batch_metrics(after))
    assert all(MARKS.title in answer(played)[0][0].heads for played in (after, [*before, *after]))
    assert MARKS.title in model_card(STORY.config(tmp_path), step=1, results={"after training": after})


def test_report_and_viewer_have_kinds_columns_and_measure(log_dir: Path, analysed: Summary) -> None:
    results, page = analysed.results, analysed.report.read_text()
    assert results["kinds"]["keeper"]["shares"] == {"parity": [0.5] * STEPS, "half": [0.5] * STEPS}
    assert results["question_kinds"]["half"] == "high or low" and "question_kinds" in analysed.figures
    curves = results["curves"]["keeper"]["measures"]
    assert curves["questions"]["mean"] == curves["marks"]["mean"] == [2.0] * STEPS
    assert results["measures"]["marks"]["title"] == MARKS.title and MARKS.title in page
    for game in collect(load([log_dir]), 99):
        for shown in game.dialogues:
            kinds = [kind for turn in shown.dialogue.turns for kind in turn.questions or ()]
            assert kinds == (["parity", "half"] if shown.row.questions else [])
            assert game.board == {"text": f"It opens at {shown.dialogue.columns['position']}."}


def test_measure_has_its_unit_and_direction(analysed: Summary) -> None:
    (section,) = (each for each in report.sections(analysed.results) if each.heading == "Other measures")
    better = {row["measure"]: row["better"] for row in section.tables[0].rows}
    assert (better[MEASURES["errors"].title], better[MEASURES["words"].title]) == ("less", "–")
    with style():
        drawn = figures.measures(analysed.results)
    units = {ax.get_title("left").replace("\n", " "): ax.get_ylabel() for ax in drawn.axes}  # type: ignore[union-attr]
    assert units["Question marks per game"] == "marks" and set(units.values()) >= {"turns", "words"}


def test_experiment_page_has_the_measure(log_dir: Path, tmp_path: Path) -> None:
    source = {"logs": [str(log_dir)], "command": "slim-rl train story"}
    manifest = {"title": "A story", "commit": "c", "machine": "m", "sources": {"held_out": source}}
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    write(tmp_path / "experiment.yaml", tmp_path / "page", "slim-rl lab page here")
    readme = (tmp_path / "page" / "README.md").read_text()
    assert f"| {MARKS.title} |" in readme and "(training.png)" in readme
    assert pd.read_csv(tmp_path / "page" / "runs.csv")["marks"].max() == 2.0


def test_columns_survive_without_the_game(log_dir: Path, tmp_path: Path) -> None:
    (line, *_) = (json.loads(each) for each in (log_dir / "train.jsonl").read_text().splitlines())
    (tmp_path / "log.jsonl").write_text(json.dumps(line | {"environment": "gone.Game"}) + "\n")
    assert load([tmp_path]).frame["position"].tolist() == [line["columns"]["position"]]
