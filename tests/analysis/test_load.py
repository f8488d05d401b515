"""Every line of a log is counted once, as a dialogue or as a reason why not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from slim_rl.analysis import analyze
from slim_rl.analysis.arms import order_arms
from slim_rl.analysis.load import load, read_dialogue
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.measures import measures
from slim_rl.errors import DataError
from slim_rl.games.matching.env import MatchingEnv
from tests.analysis import synthetic


@pytest.fixture
def dialogues() -> list[dict[str, Any]]:
    made = synthetic.make_runs(arms=("shy",), seeds=1, steps=3, games_per_step=2, group=2, n=3, eval_games=0)
    return [dialogue.to_dict(tokens=False) for dialogue in made]


def write(path: Path, lines: list[Any], end: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join((x if isinstance(x, bytes) else orjson.dumps(x)) + b"\n" for x in lines) + end)
    return path


def test_a_row_is_a_dialogue_with_its_origin_and_measures(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    write(tmp_path / "run" / "dialogues.jsonl", dialogues)
    log = load([tmp_path])
    assert len(log.frame) == len(dialogues) == log.files[0].dialogues
    for row, data in zip(log.frame.itertuples(), dialogues, strict=True):
        assert (row.arm, row.run, row.phase, row.step) == ("shy", "shy-0", "train", data["step"])
        assert (row.game_id, row.seat, row.policy, row.partner) == (data["game_id"], 0, "tiny", "shy")
        for name, value in measures(data).items():
            assert log.frame.loc[row.Index, name] == pytest.approx(value, nan_ok=True)


def test_lines_can_be_read_again(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    write(tmp_path / "a.jsonl", dialogues[:5])
    write(tmp_path / "b.jsonl", dialogues[5:])
    log = load([tmp_path])
    assert [read_dialogue(log, row) for row in log.frame.itertuples()] == json.loads(json.dumps(dialogues))


def test_runs_and_arms_are_kept_apart(log_dir: Path) -> None:
    frame = load([log_dir]).frame
    assert set(frame.groupby(["arm", "run"], observed=True).size().index) == {
        ("mute", "mute-0"), ("mute", "mute-1"), ("shy", "shy-0"), ("shy", "shy-1"),
    }  # fmt: skip
    assert set(frame["phase"]) == {"train", "eval"}


def test_several_folders_and_the_same_one_twice(log_dir: Path, tmp_path: Path) -> None:
    whole = load([log_dir])
    assert len(load([log_dir, log_dir / "shy-0", log_dir / "shy-0" / "dialogues.jsonl"]).frame) == len(whole.frame)
    one = load([log_dir / "shy-0", log_dir / "mute-1"])
    assert set(one.frame["run"]) == {"shy-0", "mute-1"}


def test_a_torn_last_line_is_counted_and_named(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    path = write(tmp_path / "torn.jsonl", dialogues, end=orjson.dumps(dialogues[0])[:200])
    log = load([tmp_path])
    assert len(log.frame) == len(dialogues)
    assert (log.files[0].lines, log.files[0].incomplete, log.files[0].unreadable) == (len(dialogues) + 1, 1, 0)
    assert any(str(path) in warning and "incomplete" in warning for warning in log.warnings)


def test_other_lines_are_counted_and_named(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    future = {**dialogues[0], "format": 99}
    broken = {**dialogues[0], "turns": "none"}
    odd = {**dialogues[0], "stop_reason": "moon phase"}
    write(tmp_path / "mixed.jsonl", [b"{nonsense", {"loss": 0.5}, [1, 2], b"", future, broken, odd, *dialogues])
    log = load([tmp_path])
    assert len(log.frame) == len(dialogues)
    assert (log.files[0].unreadable, log.files[0].foreign, log.files[0].incomplete) == (1, 5, 0)
    assert log.files[0].lines == len(dialogues) + 6
    assert sum("Ignored" in warning for warning in log.warnings) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"reward": [0.5]}, {"reward": "much"}, {"seat": 2}, {"seat": []}, {"phase": 3}, {"id": ["a"]}, {"game_id": {}}, {"seed": [1]},
        {"price": {}}, {"run": ["a"], "id": []}, {"step": "last"}, {"group": []},
    ],
    ids=str,
)  # fmt: skip
def test_load_line_with_malformed_values_counts_as_foreign(
    tmp_path: Path, dialogues: list[dict[str, Any]], wrong: dict[str, Any]
) -> None:
    write(tmp_path / "mixed.jsonl", [dialogues[0], {**dialogues[1], **wrong}, *dialogues[2:]])
    log = load([tmp_path])
    assert (len(log.frame), log.files[0].foreign) == (len(dialogues) - 1, 1)


def test_of_a_repeated_dialogue_the_last_counts(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    again = {**dialogues[2], "reward": 0.125, "stop_reason": "agreed"}
    write(tmp_path / "resumed.jsonl", [*dialogues, again])
    log = load([tmp_path])
    assert (len(log.frame), log.repeated) == (len(dialogues), 1)
    assert 0.125 in set(log.frame["reward"])
    other_run = {**dialogues[2], "run": "another"}
    write(tmp_path / "resumed.jsonl", [*dialogues, other_run])
    assert load([tmp_path]).repeated == 0


def test_games_are_the_same_by_id_and_table(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    first = dialogues[0]
    other = {**first, "id": "x", "game_state": synthetic.make_board(np.random.default_rng(9), 3)}
    write(tmp_path / "a.jsonl", [first, {**first, "id": "y", "run": "another"}, other])
    cluster = load([tmp_path]).frame["cluster"].tolist()
    assert cluster[0] == cluster[1] != cluster[2]


def test_a_line_logged_without_annotation_is_annotated(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    keys = ("questions", "pairs", "stated", "answered", "question_value", "gain", "regret")
    turns = [[{**turn, **dict.fromkeys(keys)} for turn in d["turns"]] for d in dialogues]
    bare = [{**d, "turns": each, "annotator_version": None} for d, each in zip(dialogues, turns, strict=True)]
    write(tmp_path / "with" / "a.jsonl", dialogues)
    write(tmp_path / "without" / "a.jsonl", bare)
    one, other = (load([tmp_path / name]).frame for name in ("with", "without"))
    assert one["questions"].sum() > 0
    assert one.drop(columns=["offset"]).equals(other.drop(columns=["offset"]))


def test_line_without_an_annotation_is_annotated_when_read(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    gone = ("question_value", "state_value", "proposes")
    turns = [[{k: v for k, v in turn.items() if k not in gone} for turn in line["turns"]] for line in dialogues]
    write(tmp_path / "new" / "a.jsonl", dialogues)
    write(tmp_path / "old" / "a.jsonl", [{**d, "turns": each} for d, each in zip(dialogues, turns, strict=True)])
    assert dialogues[0]["annotator_version"] == MatchingEnv.annotator_version
    assert list(read_log(tmp_path / "old")) == list(read_log(tmp_path / "new"))
    one, other = (load([tmp_path / name]).frame for name in ("new", "old"))
    assert one["question_value"].abs().sum() > 0 and one["valid_proposals"].notna().any()
    assert one.drop(columns=["offset"]).equals(other.drop(columns=["offset"]))


def test_load_older_logs_measures_pairs_asked_about(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    new = ("question_rank", "redundant", "unknown")
    turns = [[{k: v for k, v in turn.items() if k not in new} for turn in line["turns"]] for line in dialogues]
    write(tmp_path / "new" / "a.jsonl", dialogues)
    write(tmp_path / "old" / "a.jsonl", [{**d, "turns": each} for d, each in zip(dialogues, turns, strict=True)])
    one, other = (load([tmp_path / name]).frame for name in ("new", "old"))
    assert one.loc[one["questions"] > 0, list(new)].notna().any().all()
    assert one[list(new)].equals(other[list(new)])


@pytest.mark.parametrize("version", [None, 1, MatchingEnv.annotator_version + 1])
def test_load_annotates_lines_of_other_versions_again(
    tmp_path: Path, dialogues: list[dict[str, Any]], version: int | None
) -> None:
    """By all that read logs: what stands in such a line was counted by another rule."""
    wrong = {"questions": ["open"], "seeking": True, "informative": [[0, 0]], "question_value": 9.0}
    turns = [[{**turn, **wrong} for turn in d["turns"]] for d in dialogues]
    other = [{**d, "turns": each, "annotator_version": version} for d, each in zip(dialogues, turns, strict=True)]
    write(tmp_path / "new" / "a.jsonl", dialogues)
    write(tmp_path / "other" / "a.jsonl", other)
    one, again = (load([tmp_path / name]).frame for name in ("new", "other"))
    assert one.drop(columns=["offset"]).equals(again.drop(columns=["offset"]))
    assert [d.turns for d in read_log(tmp_path / "new")] == [d.turns for d in read_log(tmp_path / "other")]
    assert {d.annotator_version for d in read_log(tmp_path / "other")} == {MatchingEnv.annotator_version}


def test_lines_by_this_version_are_taken_as_they_are(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    turns = [{**turn, "question_value": 9.0} for turn in dialogues[0]["turns"]]
    write(tmp_path / "a.jsonl", [{**dialogues[0], "turns": turns}])
    (back,) = read_log(tmp_path)
    assert {turn.question_value for turn in back.turns} == {9.0}


def test_defaults_for_what_a_line_does_not_say(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    write(tmp_path / "myrun" / "a.jsonl", [{**dialogues[0], "run": "", "arm": "", "step": None, "stop_reason": None}])
    row = load([tmp_path]).frame.iloc[0]
    assert (row.run, row.arm, row.stop_reason) == ("myrun", "shy", "unknown")
    assert np.isnan(row.step)


@pytest.mark.parametrize("content", [None, [], [b'{"loss": 1}']])
def test_nothing_to_read_is_one_clear_sentence(tmp_path: Path, content: list[bytes] | None) -> None:
    if content is not None:
        write(tmp_path / "a.jsonl", content)
    with pytest.raises(DataError, match="dialogue log") as caught:
        load([tmp_path])
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path)
    with pytest.raises(DataError, match="There is no dialogue log"):
        load([tmp_path])


def test_load_same_name_in_two_folders_keeps_both(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    write(tmp_path / "probes" / "a.jsonl", [*dialogues, dialogues[0]])
    write(tmp_path / "probes" / "open_book" / "a.jsonl", dialogues[:2])
    log = load([tmp_path])
    assert (len(log.frame), log.repeated) == (len(dialogues) + 2, 1)
    (said,) = (text for text in log.warnings if "Several folders" in text)
    assert str(tmp_path / "probes" / "open_book") in said
    assert len(list(read_log(tmp_path))) == len(dialogues) + 2


@pytest.mark.parametrize("version", [None, "2", 1, 99])
def test_a_line_of_a_format_that_is_not_known_is_foreign(
    tmp_path: Path, dialogues: list[dict[str, Any]], version: Any
) -> None:
    path = write(tmp_path / "a.jsonl", [{**dialogues[0], "format": version}, dialogues[1]])
    assert load([tmp_path]).files[0].foreign == 1
    with pytest.raises(DataError, match="reads formats 3 to 4"):
        list(read_log(path))


def test_a_game_may_call_its_own_columns_as_the_analysis_does(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    eaten = [{**line, "phase": "eval", "columns": {"price": 0.5, "lost": 1}} for line in dialogues]
    write(tmp_path / "a.jsonl", eaten)
    assert load([tmp_path]).frame["price"].isna().all(), "what a question cost is the dialogue's own"
    assert analyze([tmp_path], tmp_path / "out").report.exists()


def test_training_of_which_all_failed_is_not_an_evaluation(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    write(tmp_path / "a.jsonl", [{**line, "reward": None, "stop_reason": "partner_failed"} for line in dialogues])
    page = analyze([tmp_path], tmp_path / "out").report.read_text()
    assert "No training dialogue has a reward" in page and "these logs have no training" not in page


def test_a_line_that_cannot_be_shown_ends_no_report(tmp_path: Path, dialogues: list[dict[str, Any]]) -> None:
    odd = {**dialogues[0], "arm": 3, "run": 7, "turns": [{**turn, "seconds": None} for turn in dialogues[0]["turns"]]}
    write(tmp_path / "a.jsonl", [odd, *dialogues[1:]])
    log = load([tmp_path])
    assert len(log.frame) == len(dialogues) - 1 and any("1 line of" in warning for warning in log.warnings)
    assert analyze([tmp_path], tmp_path / "out").results["sampled"] == len(dialogues) - 1


def test_arms_are_sorted_by_number_after_the_treatment() -> None:
    assert order_arms(["b", "asks_108", "asks_2_of_32", "asks_2", "a", "²", "shy", "asks_25"], "shy") == [
        "shy", "a", "asks_2", "asks_2_of_32", "asks_25", "asks_108", "b", "²",
    ]  # fmt: skip
