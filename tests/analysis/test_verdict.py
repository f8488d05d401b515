"""The answer in sentences: the same words for the terminal, the report and summary.json."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from slim_rl.analysis import Summary, analyze
from slim_rl.analysis.changes import change
from slim_rl.analysis.plays import Plays
from slim_rl.analysis.terminal_tables import before_after_table, cells_table
from slim_rl.analysis.verdict import by_how_much, sentences, verdict
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import interval
from tests.analysis import synthetic

UP = {"before": 0.7, "after": 1.5, "value": 0.8, "low": 0.6, "high": 1.0, "p": 0.0001, "clusters": 400, "by_run": [0.8]}
FLAT = {
    "before": 0.8, "after": 0.81, "value": 0.01, "low": -0.1, "high": 0.12, "p": 0.7, "clusters": 400,
    "by_run": [0.01],
}  # fmt: skip
DOWN = {
    "before": 0.8, "after": 0.6, "value": -0.2, "low": -0.3, "high": -0.1, "p": 0.01, "clusters": 400,
    "by_run": [-0.2],
}  # fmt: skip


@pytest.fixture(scope="module")
def one_run() -> list[Dialogue]:
    return list(synthetic.make_runs(arms=("shy",), seeds=1, steps=20, games_per_step=1, group=1, n=3, eval_games=40))


def halves(dialogues: list[Dialogue]) -> tuple[list[Dialogue], list[Dialogue]]:
    held_out = [d for d in dialogues if d.phase == "eval"]
    return [d for d in held_out if d.step == 0], [d for d in held_out if d.step == 20]


def test_each_outcome_has_its_words() -> None:
    learned, paid, sure = sentences(UP, UP)
    assert learned == "It learned to ask: from 0.700 to 1.50 questions per game (+0.800, 95% interval 0.600 to 1.00)."
    assert paid.startswith("Reward rose with it, ")
    assert "400 held-out games" in sure and "one run" in sure
    assert sentences(FLAT, UP)[0].startswith("It did not clearly learn to ask")
    assert sentences(FLAT, UP)[1].startswith("Reward rose, from")
    assert sentences(DOWN, FLAT)[0].startswith("It learned to ask less")
    assert sentences(UP, FLAT)[1].startswith("Reward did not clearly change")
    assert sentences(UP, DOWN)[1].startswith("Reward fell")


def test_runs_are_counted() -> None:
    several = {**UP, "by_run": [0.9, 1.0, -0.1], "over": "seeds and games"}
    assert "questions rose in 2 of 3 runs and reward in 3" in sentences(several, {**UP, "by_run": [0.1] * 3})[2]


def test_several_seeds_are_judged_over_seeds_and_games() -> None:
    """Sure of these games, given these seeds, is not sure of seeds."""
    rose = [0.9, 1.0, -0.1]
    rows = [
        {"condition": "shy", "arm": "shy", "run": str(seed), "when": when, "game": str(game)}
        | dict.fromkeys(("questions", "reward"), game / 40 + (when == "after") * more)
        for seed, more in enumerate(rose)
        for game in range(40)
        for when in ("before", "after")
    ]
    plays = Plays(pd.DataFrame(rows))
    alone = Plays(plays.held_out[plays.held_out["run"] == "0"])
    row, one = (change(each, "shy", "questions", "shy") for each in (plays, alone))
    assert (one["over"], row["over"]) == ("games", "seeds and games")
    assert one["p"] < 0.001 and one["value"] == pytest.approx(0.9)
    assert row["low"] < 0 < row["high"] and row["by_run"] == pytest.approx(rose)
    said = sentences(row, {**UP, "by_run": [0.1] * 3})
    assert said[0].startswith("It did not clearly learn to ask")
    assert f"from {0.4875:.3f} to 1.09 questions per game" in said[0]
    assert "by each of 3 seeds" in said[2] and "over seeds and games" in said[2]
    assert said[2].endswith(
        f"predicted change of questions for one more seed: {interval(row['next_low'], row['next_high'])}."
    )
    assert row["next_low"] < row["low"] and row["next_high"] > row["high"]


def test_too_few_games_say_so() -> None:
    unknown = {**UP, "low": float("nan"), "high": float("nan")}
    assert sentences(unknown, unknown) == [
        "Too few games to tell whether it learned to ask: fewer than two were played both before and after."
    ]
    assert verdict([], []) == sentences(unknown, unknown)


@pytest.mark.usefixtures("unprinted")
def test_terminal_report_and_summary_say_the_same(one_run: list[Dialogue], tmp_path: Path) -> None:
    synthetic.write_runs(
        tmp_path / "logs", arms=("shy",), seeds=1, steps=20, games_per_step=1, group=1, n=3, eval_games=40
    )
    summary: Summary = analyze([tmp_path / "logs"], tmp_path / "plots")
    said = verdict(*halves(one_run))
    assert summary.results["verdict"][0]["sentences"] == said
    page = summary.report.read_text(encoding="utf-8")
    assert all(sentence.replace("<", "&lt;") in page for sentence in said)
    assert page.index(said[0]) < page.index("<figure") < page.index('id="tables"')
    assert page.count('class="card ') == 4


def test_over_an_evaluation_the_first_table_is_about_it(tmp_path: Path) -> None:
    synthetic.write_runs(tmp_path / "logs", arms=("shy", "mute"), seeds=1, steps=0, n=3, eval_games=12)
    page = analyze([tmp_path / "logs"], tmp_path / "plots").report.read_text(encoding="utf-8")
    assert page.index("Evaluation: ") < page.index("<table")
    assert "Held-out games, with 95% intervals" in page[page.index("<table") :][:200]
    assert "Training: the first" not in page


def test_the_change_of_a_share_is_in_points_wherever_it_stands(one_run: list[Dialogue], tmp_path: Path) -> None:
    """'+0.000 points' on a card is '+0.0%' in the table beside it: one of them is enough."""
    none = {"value": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}
    assert by_how_much(none, share=True) == "+0.0 points, 95% interval 0.0 to 0.0"
    table = before_after_table(*halves(one_run))
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    agreed = next(row for row in rows if row[0] == "games agreed")
    assert str(agreed[3]).endswith(" points") and "%" not in str(agreed[4])


def test_tables_fit_80_columns(one_run: list[Dialogue]) -> None:
    before, after = halves(one_run)
    long = {"a_checkpoint_of_some_name_shy_forced2": before, "another_checkpoint_mute_free": after}
    for table in (before_after_table(before, after), cells_table(long, "400 held-out games")):
        headings = [column.header for column in table.columns]
        assert len(set(headings)) == len(headings)
        console = Console(file=io.StringIO(), width=80)
        console.print(table)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= 80
