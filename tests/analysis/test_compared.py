"""Evaluated policies compared: on the games that both played, and only where one thing differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from slim_rl.analysis import analyze
from slim_rl.analysis.compared import PlayedCell, _difference_of_runs, cells_of, compare, sentence_of
from slim_rl.analysis.load import load
from slim_rl.analysis.terminal_tables import compared_sentences
from slim_rl.dialogue.record import Dialogue
from tests.analysis import synthetic


def cell(name: str, questions: list[float], policy: str = "a", mode: str = "free", games: str = "pqrs") -> PlayedCell:
    columns: dict[str, Any] = {measure: [1.0] * 4 for measure in ("informative_pairs", "reward", "agreed")}
    return PlayedCell(name, policy, "shy", mode, pd.DataFrame({"questions": questions, **columns}, index=list(games)))


def test_a_difference_is_over_the_common_games() -> None:
    (pair,) = compare([cell("more", [1, 2, 3, 9]), cell("less", [9, 0, 1, 1], policy="b", games="xpqr")])
    asked = pair["measures"]["questions"]
    assert pair["games"] == 3 and asked["clusters"] == 3
    assert abs(asked["value"]) == pytest.approx(4 / 3)
    assert pair["measures"]["reward"]["value"] == 0


@pytest.mark.parametrize(("asked", "difference"), [([2, 3, 4, 3], 2.75), ([0, 0, 0, 0], -0.25)])
def test_the_one_named_first_is_the_baseline_whatever_came_out(asked: list[float], difference: float) -> None:
    (pair,) = compare([cell("silent", [0, 0, 1, 0], mode="forbidden"), cell("asks", asked)])
    assert (pair["first"], pair["second"]) == ("silent", "asks")
    assert pair["measures"]["questions"]["value"] == pytest.approx(difference)
    assert sentence_of(pair).startswith(
        f"On the same 4 games, asks minus silent: questions per game {difference:+.2f}".replace("-", "−")
    )


def test_only_one_thing_may_differ_and_policies_come_first() -> None:
    cells = [
        cell("a free", [1, 2, 1, 2]),
        cell("b free", [3, 3, 3, 4], policy="b"),
        cell("a forbidden", [0, 0, 0, 0], mode="forbidden"),
        cell("b forbidden", [0, 0, 0, 0], policy="b", mode="forbidden"),
    ]
    pairs = [{pair["first"], pair["second"]} for pair in compare(cells)]
    assert len(pairs) == 4
    assert {"a free", "b forbidden"} not in pairs and {"b free", "a forbidden"} not in pairs
    assert pairs[0] == {"a free", "b free"}


def test_other_games_are_not_compared() -> None:
    assert compare([cell("a", [1, 2, 3, 4]), cell("b", [1, 2, 3, 4], policy="b", games="xyzs")]) == []


def evaluation(folder: Path) -> dict[str, list[Dialogue]]:
    """Two cells as `slim-rl evaluate` logs them, on the same games."""
    synthetic.write_runs(folder, arms=("shy", "mute"), seeds=1, steps=0, n=3, eval_games=30)
    from slim_rl.dialogue.log import read_log

    played: dict[str, list[Dialogue]] = {}
    for dialogue in read_log(folder):
        played.setdefault(dialogue.arm, []).append(dialogue)
    return played


def test_the_report_and_the_terminal_say_the_same(tmp_path: Path) -> None:
    played = evaluation(tmp_path / "logs")
    summary = analyze([tmp_path / "logs"], tmp_path / "plots")
    (pair,) = summary.results["compared"]
    page = summary.report.read_text(encoding="utf-8")
    assert compared_sentences({name: played[name] for name in (pair["first"], pair["second"])}) == [sentence_of(pair)]
    assert sentence_of(pair) in page and page.count('class="card ') == 4
    assert page.index(sentence_of(pair)) < page.index("Cell minus baseline on the games that both played")


def test_training_is_not_an_evaluation(log_dir: Path) -> None:
    assert cells_of(load([log_dir]).frame) == []


def test_first_second_and_difference_are_of_the_same_games() -> None:
    a, b = (pd.DataFrame([values], columns=list("xyz")) for values in ([0.5, 1.0, np.nan], [0.5, 1.0, 0.0]))
    sides = [side.melt(var_name="game", value_name="agreed").assign(run=run) for side, run in ((a, "a"), (b, "b"))]
    found = _difference_of_runs(sides[0], sides[1], ["x", "y", "z"], "agreed")
    assert (found["before"], found["after"], found["value"]) == pytest.approx((0.75, 0.75, 0.0))
