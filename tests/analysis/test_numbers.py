"""The numbers and sentences of the report, on runs whose behaviour is known; all values of a small log are in `tests/goldens`."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from rich.console import Console

from slim_rl.analysis import analyze
from slim_rl.analysis.figures import training
from slim_rl.analysis.held_out import PlayedCell, cells_of, compare, held_out
from slim_rl.analysis.load import load
from slim_rl.analysis.report import answer, checkpoints
from slim_rl.analysis.summary import BINS, summarise
from slim_rl.analysis.tables import on_screen
from slim_rl.analysis.verdict import TOO_FEW, by_how_much, on_pair, sentences
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import p_value
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.measured import measured
from tests.analysis import synthetic

FALSE = "stated a false value"


@pytest.fixture(scope="module")
def frame(log_dir: Path) -> pd.DataFrame:
    return load([log_dir]).frame


@pytest.fixture(scope="module")
def results(frame: pd.DataFrame) -> dict[str, Any]:
    return summarise(frame, kinds=measured(MatchingEnv).question_kinds)


@pytest.fixture(scope="module")
def one_run() -> list[Dialogue]:
    return list(synthetic.make_runs(arms=("shy",), seeds=1, steps=20, games_per_step=1, group=1, n=3, eval_games=40))


def halves(dialogues: list[Dialogue]) -> list[list[Dialogue]]:
    return [[d for d in dialogues if (d.phase, d.step) == ("eval", step)] for step in (0, 20)]


# -- over training


def test_curves_have_every_dialogue_once_without_failures(results: dict[str, Any], frame: pd.DataFrame) -> None:
    train = frame[frame["phase"] == "train"]
    assert 0 < frame["failed"].sum() < len(frame)
    for arm, found in results["curves"].items():
        points, played = found["measures"]["reward"], train[(train["arm"] == arm) & ~train["failed"]]
        assert sum(points["n"]) == len(played) and set(points["runs"]) == {f"{arm}-0", f"{arm}-1"}
        assert len(found["steps"]) == len(points["mean"]) == 24 <= BINS
        assert np.average(points["mean"], weights=points["n"]) == pytest.approx(played["reward"].mean())
        reasons, kinds = results["stop_reasons"][arm], results["kinds"][arm]
        assert sum(reasons["counts"].values()) == (train["arm"] == arm).sum()
        assert np.sum(list(reasons["shares"].values()), axis=0) == pytest.approx(1)
        total = np.sum([kinds["shares"][kind] for kind in ("pair", "open", "check", "process")], axis=0)
        assert total[np.array(kinds["questions_any"]) > 0] == pytest.approx(1)
        ends = [played[played["step"].between(*span)]["reward"].mean() for span in ((0, 2.3), (20.7, 23))]
        assert [results["ends"][arm]["reward"][side]["value"] for side in ("first", "last")] == pytest.approx(ends)
    counted = sum(point["n"] for points in results["reward_by_questions"].values() for point in points)
    assert counted == (~frame["failed"]).sum()


def test_many_steps_share_points_and_one_has_no_interval(frame: pd.DataFrame) -> None:
    longer = summarise(frame.assign(step=frame["step"] * 7 + np.arange(len(frame)) % 7))["curves"]["shy"]
    assert len(longer["steps"]) == BINS and longer["steps"] == sorted(longer["steps"])
    one = frame[(frame["run"] == "shy-0") & (frame["phase"] == "train") & ~frame["failed"]].iloc[:1]
    alone = summarise(one.assign(arm=one["arm"].cat.remove_unused_categories()))
    assert alone["curves"]["shy"]["measures"]["reward"]["mean"] == one["reward"].tolist()
    assert np.isnan(alone["curves"]["shy"]["measures"]["reward"]["low"][0])
    assert alone["held_out"] == alone["verdict"] == alone["checkpoints"] == []
    without = summarise(frame[frame["phase"] == "train"].assign(step=np.nan))  # an adapter's log
    assert without["curves"]["shy"]["steps"] == [0] and without["curves"]["shy"]["measures"]["reward"]["n"][0] > 100


# -- held-out games


def test_held_out_games_are_compared_before_and_after(results: dict[str, Any], frame: pd.DataFrame) -> None:
    assert {(cell["arm"], cell["step"]) for cell in results["checkpoints"]} == {
        (a, s) for a in ("shy", "mute") for s in (0, 24)
    }
    row = next(r for r in results["held_out"] if (r["arm"], r["measure"]) == ("shy", "questions"))
    assert (row["runs"], row["over"]) == (2, "seeds and games")
    part = frame[(frame["phase"] == "eval") & (frame["arm"] == "shy") & ~frame["failed"]]
    means = part.groupby(["run", "step", "game_id"], observed=True)["questions"].mean().unstack("step").dropna()
    moved = (means[24] - means[0]).groupby("run", observed=True).mean()
    assert row["clusters"] == means.index.get_level_values("game_id").nunique() <= 8
    assert row["by_run"] == pytest.approx(moved.tolist()) and row["value"] == pytest.approx(moved.mean())


def test_checkpoints_between_are_dots_and_a_table_and_no_before(frame: pd.DataFrame) -> None:
    played = frame["phase"] == "eval"
    between = frame[played & (frame["step"] == 24)].assign(step=12.0)
    more, plain = summarise(pd.concat([frame, between], ignore_index=True)), summarise(frame)
    assert [row["checkpoint"] for row in checkpoints(more).rows] == [f"eval, step {step}" for step in (0, 12, 24)] * 2
    assert not checkpoints(plain).rows and more["held_out"] == plain["held_out"]
    for numbers, dots in ((more, [3, 3]), (plain, [])):
        drawn = training(numbers)
        found = [[len(c.get_offsets()) for c in ax.collections if isinstance(c, PathCollection)] for ax in drawn.axes]  # type: ignore[union-attr]
        assert found == [dots] * 2
    late = pd.concat([frame[~(played & (frame["step"] == 0))], between], ignore_index=True)
    after = held_out(frame).query("when == 'after'")["reward"].tolist()
    for rows in (late, late[late["phase"] == "eval"]):  # what was played during training is not before it
        assert set(held_out(rows)["when"]) == {"after"} and held_out(rows)["reward"].tolist() == after


def cell(name: str, questions: list[float], policy: str = "a", mode: str = "free", games: str = "pqrs") -> PlayedCell:
    columns: dict[str, Any] = dict.fromkeys(("informative_pairs", "reward", "agreed"), 1.0) | {"run": ""}
    frame = pd.DataFrame({"questions": questions}, index=list(games)).assign(**columns)
    return PlayedCell(name, policy, "shy", mode, frame)


@pytest.mark.parametrize(
    ("first", "second", "games", "difference"),
    [
        (cell("a", [1, 2, 3, 9]), cell("b", [9, 0, 1, 1], policy="b", games="xpqr"), 3, -4 / 3),
        (cell("silent", [0, 0, 1, 0], mode="forbidden"), cell("asks", [2, 3, 4, 3]), 4, 2.75),
        (cell("silent", [0, 0, 1, 0], mode="forbidden"), cell("asks", [0, 0, 0, 0]), 4, -0.25),
    ],
)
def test_the_later_minus_the_earlier_on_common_games(
    first: PlayedCell, second: PlayedCell, games: int, difference: float
) -> None:
    (pair,) = compare([first, second])
    assert (pair["first"], pair["second"], pair["games"]) == (first.name, second.name, games)
    asked, reward = (pair["measures"][name] for name in ("questions", "reward"))
    assert (asked["value"], asked["clusters"], reward["value"]) == (pytest.approx(difference), games, 0)
    said = f"On the same {games} games, {second.name} minus {first.name}: questions per game {difference:+.2f}"
    assert on_pair(pair).startswith(said.replace("-", "−") if abs(difference) > 1 else said[:-5].replace("-", "−"))


def test_several_seeds_are_compared_on_common_games_too() -> None:
    few, more = cell("a", [1] * 4, games="ppqq"), cell("b", [1, 1, 1, 1, 9, 9], policy="b", games="ppqqrr")
    for each in (few, more):
        each.games["run"] = ["s0", "s1"] * (len(each.games) // 2)
    (pair,) = compare([few, more])
    assert pair["games"] == 2 and pair["measures"]["questions"]["value"] == 0.0


def test_only_one_thing_may_differ_and_policies_come_first(log_dir: Path) -> None:
    policies = [(p, m) for m in ("free", "forbidden") for p in "ab"]
    pairs = [{x["first"], x["second"]} for x in compare([cell(f"{p} {m}", [1, 2, 1, 2], p, m) for p, m in policies])]
    assert len(pairs) == 4 and pairs[0] == {"a free", "b free"}
    assert {"a free", "b forbidden"} not in pairs and {"b free", "a forbidden"} not in pairs
    assert compare([cell("a", [1, 2, 3, 4]), cell("b", [1, 2, 3, 4], policy="b", games="xyzs")]) == []
    assert compare(cells_of(load([log_dir]).frame)) == [], "arms that train with other partners"


def test_first_second_and_difference_are_of_the_same_games() -> None:
    sides = [cell(name, [1, 1, 1, 1], policy=name) for name in "ab"]
    for side, agreed in zip(sides, ([0.5, 1.0, np.nan, np.nan], [0.5, 1.0, 0.0, 0.0]), strict=True):
        side.games["agreed"] = agreed
    found = compare(sides)[0]["measures"]["agreed"]
    assert (found["before"], found["after"], found["value"]) == pytest.approx((0.75, 0.75, 0.0))


def of_one_run(rows: list[tuple[str, str, float]]) -> dict[str, Any]:
    games = pd.DataFrame(rows, columns=["when", "game", "reward"]).assign(condition="shy", arm="shy", run="a")
    return synthetic.changed(games, "shy", "reward", "shy")


def test_one_run_is_compared_on_games_played_both_times() -> None:
    rows = [("before", "x", 0.2), ("before", "y", 0.4), ("before", "z", 1.0), ("after", "x", 0.4), ("after", "y", 0.4)]
    row = of_one_run(rows)
    assert (row["before"], row["after"], row["value"], row["clusters"]) == pytest.approx((0.3, 0.4, 0.1, 2))


def test_rare_large_changes_have_one_verdict() -> None:
    """Skewed changes, of which signs flipped at random would give another p than the interval."""
    changes = [0.0] * 30 + [0.5, 0.45, 0.4, 0.35, 0.3]
    rows = [("before", str(game), 0.1) for game in range(35)]
    row = of_one_run(rows + [("after", str(game), 0.1 + more) for game, more in enumerate(changes)])
    said = " ".join(sentences(row, row))
    assert row["low"] > 0 and row["p"] < 0.05 and "Reward rose" in said and f"{p_value(row['p'])} for reward" in said


# -- sentences

ROW = {"before": 0.7, "after": 1.5, "value": 0.8, "p": 0.0001, "clusters": 400, "by_run": [0.8], "over": "games"}
UP, FLAT, DOWN = ({**ROW, "low": low, "high": high} for low, high in ((0.6, 1.0), (-0.1, 0.12), (-0.3, -0.1)))


@pytest.mark.parametrize(
    ("questions", "reward", "learned", "paid"),
    [
        (UP, UP, "It learned to ask: from 0.700 to 1.50 questions per game (+0.800, 95% interval 0.600 to 1.00).", "Reward rose with it, from"),
        (FLAT, UP, "It did not clearly learn to ask: from", "Reward rose, from"),
        (DOWN, FLAT, "It learned to ask less: from", "Reward did not clearly change: from"),
        (UP, DOWN, "It learned to ask: from", "Reward fell, from"),
    ],
)  # fmt: skip
def test_each_outcome_has_its_words(questions: dict, reward: dict, learned: str, paid: str) -> None:
    said = sentences(questions, reward)
    assert said[0].startswith(learned) and said[1].startswith(paid)
    assert "400 held-out games" in said[2] and "one run" in said[2]
    several = sentences({**questions, "by_run": [0.9, 1.0, -0.1]}, {**reward, "by_run": [0.1] * 3})
    assert "questions rose in 2 of 3 runs and reward in 3" in several[2]
    unknown = {**questions, "low": float("nan"), "high": float("nan")}
    assert sentences(unknown, unknown) == [TOO_FEW]
    assert by_how_much({"value": 0.0, "low": 0.0, "high": 0.0}, share=True) == "+0.0 points, 95% interval 0.0 to 0.0"


def test_several_seeds_are_judged_over_seeds_and_games() -> None:
    """Sure of these games, given these seeds, is not sure of seeds."""
    rose = [0.9, 1.0, -0.1]
    rows = [
        (str(seed), when, str(game), value)
        for seed, more in enumerate(rose)
        for game in range(40)
        for when, value in (("before", game / 40), ("after", game / 40 + more))
    ]
    games = pd.DataFrame(rows, columns=["run", "when", "game", "questions"]).assign(condition="shy", arm="shy")
    row, one = (synthetic.changed(each, "shy", "questions", "shy") for each in (games, games[games["run"] == "0"]))
    assert (one["over"], row["over"]) == ("games", "seeds and games")
    assert one["p"] < 0.001 and one["value"] == pytest.approx(0.9)
    assert row["next_low"] < row["low"] < 0 < row["high"] < row["next_high"] and row["by_run"] == pytest.approx(rose)
    said = sentences(row, {**UP, "by_run": [0.1] * 3})
    assert said[0].startswith(f"It did not clearly learn to ask: from {0.4875:.3f} to 1.09 questions per game")
    assert "by each of 3 seeds" in said[2] and "over seeds and games" in said[2] and "one more seed: " in said[2]


@pytest.mark.usefixtures("unprinted")
def test_terminal_and_report_say_the_same(one_run: list[Dialogue], tmp_path: Path) -> None:
    options: dict[str, Any] = {"games_per_step": 1, "group": 1, "n": 3, "eval_games": 40}
    synthetic.write_runs(tmp_path / "run", arms=("shy",), seeds=1, steps=20, **options)
    trained = analyze([tmp_path / "run"], tmp_path / "plots")
    said, page = (
        answer([each for half in halves(one_run) for each in half])[1],
        trained.report.read_text(encoding="utf-8"),
    )
    assert trained.results["verdict"][0]["sentences"] == said[:3]
    assert all(sentence.replace("<", "&lt;") in page for sentence in said)
    assert page.index(said[0]) < page.index("<table") < page.index("<figure") < page.index('id="sections"')
    synthetic.write_runs(tmp_path / "cells", arms=("shy", "mute"), seeds=1, steps=0, n=3, eval_games=30)
    summary = analyze([tmp_path / "cells"], tmp_path / "plots")
    (pair,), page = summary.results["compared"], summary.report.read_text(encoding="utf-8")
    assert answer(sorted(read_log(tmp_path / "cells"), key=lambda d: d.arm != pair["first"]))[1][1:] == [on_pair(pair)]
    order = ("Evaluation: ", on_pair(pair), "Held-out games, with 95% intervals", "Arm minus baseline on the games")
    places = [page.index(text) for text in order]
    assert places == sorted(places) and "Training: the first" not in page and "training" not in summary.figures


def test_tables_fit_80_columns(one_run: list[Dialogue]) -> None:
    before, after = halves(one_run)
    names = {"a_checkpoint_of_some_name_shy_forced2": before, "another_checkpoint_mute_free": after}
    long = [replace(d, arm=name, step=None) for name, dialogues in names.items() for d in dialogues]
    for table in (*answer([*before, *after])[0], *answer(long)[0]):
        console = Console(file=io.StringIO(), width=80)
        console.print(*on_screen(table), sep="\n")
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "…" not in text and max(map(len, text.splitlines())) <= 80
    (row,) = answer([*before, *after])[0][0].rows
    change = row["games agreed"].partition("(")[2]
    assert " points" in change and "%" not in change, "the change of a share is in points"


# -- the partner's faults


@pytest.mark.usefixtures("unprinted")
def test_partner_faults_are_reported_and_subtracted_from_reward(tmp_path: Path) -> None:
    slipped: list[Dialogue] = []
    after: list[Dialogue] = []
    path = tmp_path / "logs" / "log.jsonl"
    path.parent.mkdir()
    with path.open("wb") as file:
        for dialogue in synthetic.make_runs(arms=("shy",), seeds=1, steps=6, n=3, eval_games=30):
            dialogue.partner["accept_fraction"] = 0  # it may accept any plan
            if (dialogue.phase, dialogue.step) == ("eval", 6) and not dialogue.failed:
                after.append(dialogue)
                if dialogue.turns[1:] and dialogue.turns[1].text.startswith("[message]") and len(slipped) < 5:
                    dialogue.turns[0].text = "[message] What is Ava Li on BLEU?"
                    dialogue.turns[1].text = "[message] Ava Li on BLEU: 1234."  # which the board does not hold
                    annotate(dialogue)
                    dialogue.reward = 1.0
                    slipped.append(dialogue)
            file.write(orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n")
    summary = analyze([path], tmp_path / "plots", max_dialogues=0)
    rows = {(row["phase"], row["step"]): row for row in orjson.loads(summary.summary.read_bytes())["partner_faults"]}
    places = (("train", None), ("eval", 0), ("eval", 6))
    assert [rows.pop(key)["faults"][FALSE]["faults"] for key in places[:2]] == [0, 0]
    ((key, row),) = rows.items()
    assert key == places[2] and row["faults"][FALSE]["faults"] == 5
    clean = [d.reward for d in after if d not in slipped]
    assert row["clean_reward"]["value"] == pytest.approx(sum(clean) / len(clean))
    assert row["reward"]["value"] == pytest.approx((sum(clean) + 5) / len(after))
    page, cases = " ".join(summary.report.read_text(encoding="utf-8").split()), row["faults"][FALSE]["cases"]
    said = f"Partner faults after training: {FALSE}, 5 of {cases} times ({100 * 5 / cases:.1f}%). Reward of dialogues without any: from "
    assert said in page and page.index(said) < page.index("<figure")
    assert f"5 of {cases}</span></span>" in page[page.index("Partner faults (intended ones included)") :]


def test_a_dialogue_that_the_audit_cannot_read_still_counts(tmp_path: Path) -> None:
    dialogue = next(d for d in synthetic.make_runs(arms=("shy",), seeds=1, steps=4, n=3) if len(d.turns) > 2)
    dialogue.partner = {"kind": "shy", "answers": "some", "accept_fraction": "half"}
    (tmp_path / "log.jsonl").write_bytes(orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n")
    log = load([tmp_path])
    assert len(log.frame) == 1 and log.files[0].foreign == 0
