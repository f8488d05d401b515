"""Every line of a log is counted once, as a dialogue or as a reason why not; a row is a dialogue with its origin and measures."""

import copy
import io
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as draw
from rich.console import Console

from slim_rl.analysis import analyze
from slim_rl.analysis.arms import order_arms
from slim_rl.analysis.load import load, read_dialogue, row_of
from slim_rl.commands.show import show
from slim_rl.dialogue.log import of_line, read_log
from slim_rl.dialogue.measures import measures
from slim_rl.errors import DataError
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.measured import measured
from tests.analysis import synthetic

Lines = list[dict[str, Any]]
RUN = synthetic.make_runs(arms=("shy",), seeds=1, steps=3, games_per_step=2, group=2, n=3, eval_games=0)
LINES: Lines = [orjson.loads(orjson.dumps(dialogue.to_dict(tokens=False))) for dialogue in RUN]
FIRST, REST = LINES[0], LINES[1:]


def write(path: Path, lines: list[Any], end: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join((x if isinstance(x, bytes) else orjson.dumps(x)) + b"\n" for x in lines) + end)
    return path


def test_a_row_is_a_dialogue_with_its_origin_and_measures(tmp_path: Path) -> None:
    write(tmp_path / "run" / "a.jsonl", LINES[:5])
    write(tmp_path / "run" / "b.jsonl", LINES[5:])
    hidden = ".ipynb_checkpoints/a-checkpoint ._a .Trash/1/c @eaDir/a #recycle/a"
    for name in hidden.split():
        write(tmp_path / "run" / f"{name}.jsonl", LINES)
    log = load([tmp_path])
    assert [file.dialogues for file in log.files] == [5, len(LINES) - 5]
    assert [read_dialogue(log, row) for row in log.frame.itertuples()] == LINES
    for row, data in zip(log.frame.itertuples(), LINES, strict=True):
        assert (row.arm, row.run, row.phase, row.step) == ("shy", "shy-0", "train", data["step"])
        assert (row.game_id, row.seat, row.policy, row.partner) == (data["game_id"], 0, "tiny", "shy")
        found = {name: log.frame.loc[row.Index, name] for name in measures(data)}
        assert found == pytest.approx(measures(data), nan_ok=True)


WRONG = """
{reward: [0.5]} | {reward: much} | {seat: 2} | {seat: []} | {phase: 3} | {id: [a]} | {game_id: {}} | {seed: [1]} | {price: {}}
{run: [a], id: []} | {step: last} | {group: []} | {turns: none} | {format: null} | {format: "2"} | {format: 1} | {format: 99}
{stop_reason: moon phase} | {arm: 3, run: 7}
"""


@pytest.mark.parametrize(
    ("lines", "end", "counts", "said"),
    [
        (LINES, orjson.dumps(FIRST)[:200], {"incomplete": 1}, "Ignored: the incomplete last line of"),
        ([b"{nonsense", *LINES], b"", {"unreadable": 1}, "Ignored: 1 line of"),
        ([{"loss": 0.5}, [1, 2], b"", *LINES], b"", {"foreign": 2}, "that are not dialogues (formats 3 to 4)"),
        *(
            ([{**FIRST, **wrong}, *LINES], b"", {"foreign": 1}, "that are not dialogues")
            for wrong in map(yaml.safe_load, re.split(r" \| |\n", WRONG.strip()))
        ),
        ([*LINES, {**LINES[2], "reward": 0.125}], b"", {"repeated": 1}, "Logged again by a resumed run"),
        ([*LINES, {**LINES[2], "run": "another"}], b"", {"more": 1}, ""),
    ],
)
def test_every_line_is_counted_once(
    tmp_path: Path, lines: list[Any], end: bytes, counts: dict[str, int], said: str
) -> None:
    log = load([write(tmp_path / "log.jsonl", lines, end)])
    (file,) = log.files
    zero = dict.fromkeys(("incomplete", "unreadable", "foreign", "repeated", "more"), 0)
    more = len(log.frame) - len(LINES)
    found = {"incomplete": file.incomplete, "unreadable": file.unreadable, "foreign": file.foreign}
    assert {**found, "repeated": log.repeated, "more": more} == {**zero, **counts}
    assert file.lines == sum(line != b"" for line in lines) + bool(end)
    assert file.lines == file.dialogues + file.incomplete + file.unreadable + file.foreign
    assert any(said in warning for warning in log.warnings) == bool(said)
    assert (0.125 in set(log.frame["reward"])) == (log.repeated > 0), "the last of a repeated dialogue counts"


def test_folders_are_told_apart(log_dir: Path, tmp_path: Path) -> None:
    whole = load([log_dir])
    assert len(load([log_dir, log_dir / "shy-0", log_dir / "shy-0" / "dialogues.jsonl"]).frame) == len(whole.frame)
    assert set(whole.frame.groupby(["arm", "run"], observed=True).groups) == {
        (arm, f"{arm}-{seed}") for arm in ("mute", "shy") for seed in (0, 1)
    }
    write(tmp_path / "probes" / "a.jsonl", [*LINES, FIRST])
    write(tmp_path / "probes" / "open_book" / "a.jsonl", LINES[:2])
    log = load([tmp_path])
    assert (len(log.frame), log.repeated) == (len(LINES) + 2, 1) == (len(list(read_log(tmp_path))), 1)
    assert any("Several folders" in said and str(tmp_path / "probes" / "open_book") in said for said in log.warnings)


def test_games_are_the_same_by_id_and_table(tmp_path: Path) -> None:
    other = {**FIRST, "id": "x", "game_state": synthetic.make_board(np.random.default_rng(9), 3)}
    log = load([write(tmp_path / "a.jsonl", [FIRST, {**FIRST, "id": "y", "run": "another"}, other])])
    cluster = log.frame["cluster"].tolist()
    assert cluster[0] == cluster[1] != cluster[2]


VERSION = measured(MatchingEnv).annotator_version
ALL = ("questions", "pairs", "stated", "answered", "question_value", "gain", "regret")
FALSE = {"questions": ["open"], "seeking": True, "informative": [[0, 0]], "question_value": 9.0}


@pytest.mark.parametrize(
    ("version", "change"),
    [
        (None, lambda turn: {**turn, **dict.fromkeys(ALL)}),
        *((VERSION, lambda turn, gone=gone: {k: v for k, v in turn.items() if k not in gone}) for gone in (
            ("question_value", "state_value", "proposes"), ("question_rank", "redundant", "unknown"),
        )),
        *((version, lambda turn: {**turn, **FALSE}) for version in (None, 1, VERSION + 1)),
    ],
)  # fmt: skip
def test_annotations_of_another_version_are_made_again(
    tmp_path: Path, version: int | None, change: Callable[[Any], Any]
) -> None:
    other = [{**d, "turns": [change(turn) for turn in d["turns"]], "annotator_version": version} for d in LINES]
    paths = [write(tmp_path / name / "a.jsonl", lines) for name, lines in (("new", LINES), ("other", other))]
    one, again = (load([path]).frame.drop(columns="offset") for path in paths)
    assert one["questions"].sum() > 0 and one["question_value"].abs().sum() > 0 and one.equals(again)
    assert [d.turns for d in read_log(paths[0])] == [d.turns for d in read_log(paths[1])]
    kept = [{**FIRST, "turns": [{**turn, "question_value": 9.0} for turn in FIRST["turns"]]}]
    (back,) = read_log(write(tmp_path / "kept.jsonl", kept))
    assert {turn.question_value for turn in back.turns} == {9.0}, "those of this version are taken as they are"


def test_defaults_for_what_a_line_does_not_say(tmp_path: Path) -> None:
    bare = {**FIRST, "run": "", "arm": "", "step": None, "stop_reason": None, "columns": {"price": 0.5}}
    frame = load([write(tmp_path / "myrun" / "a.jsonl", [bare])]).frame
    row = frame.iloc[0]
    assert (row.run, row.arm, row.stop_reason) == ("myrun", "shy", "unknown") and np.isnan(row.step)
    assert frame["price"].isna().all(), "what a question cost is the dialogue's own, whatever a game calls its columns"


def test_nothing_to_read_is_one_clear_sentence(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with pytest.raises(DataError, match="There is no dialogue log"):
        load([logs])
    logs.mkdir()
    for content in (None, [], [b'{"loss": 1}']):
        if content is not None:
            write(logs / "a.jsonl", content)
        with pytest.raises(DataError, match=rf"^[^\n]*{logs}[^\n]*dialogue log[^\n]*$"):
            load([logs])


def test_arms_are_sorted_by_number_after_the_treatment() -> None:
    assert order_arms(["b", "asks_108", "asks_2_of_32", "asks_2", "a", "²", "shy", "asks_25"], "shy") == [
        "shy", "a", "asks_2", "asks_2_of_32", "asks_25", "asks_108", "b", "²",
    ]  # fmt: skip


# -- damaged files of other people: one sentence, or not counted and said; never a traceback


VALUES: list[Any] = [None, True, False, 0, -1, 3.7, 1e308, 10**18, "x", "", [], {}, [None], [1], {"a": 1}, [[[]]]]


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in JSON data."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(rng: random.Random) -> dict[str, Any]:
    """A line of which one value is another, or is missing."""
    data = copy.deepcopy(rng.choice(LINES))
    *path, last = rng.choice([place for place in places(data) if place[0] != "game_state" or rng.random() < 0.2])
    owner: Any = data
    for key in path:
        owner = owner[key]
    if rng.random() < 0.1:
        del owner[last]
    else:
        owner[last] = rng.choice(VALUES)
    return data


@settings(max_examples=100, deadline=None)
@given(draw.integers(0, 2**32))
def test_a_mutated_line_is_read_or_refused_by_all_readers(seed: int) -> None:
    try:
        dialogue = of_line(mutated(random.Random(seed)))
    except ValueError as error:
        assert str(error).startswith("it") and len(str(error)) < 250
        return
    row_of(dialogue)
    show(Console(file=io.StringIO()), dialogue)


def test_a_log_of_mutated_lines_is_analysed(tmp_path: Path, unprinted: None) -> None:
    rng = random.Random(0)
    lines = [{**mutated(rng), "id": f"m{number}"} for number in range(300)]
    log = write(tmp_path / "run" / "train.jsonl", [*LINES, *lines])
    summary = analyze([log.parent], tmp_path / "plots")
    (file,) = summary.results["files"]
    assert file["lines"] == len(lines) + len(LINES) == file["dialogues"] + file["foreign"]
    assert file["foreign"] > 20 and any("that are not dialogues" in text for text in summary.results["warnings"])


def test_links_to_nothing_and_folders_among_logs_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", LINES)
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.jsonl").mkdir()
    assert len(load([tmp_path]).frame) == len(list(read_log(tmp_path))) == len(LINES)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    plain = write(tmp_path / "a" / "train.jsonl", LINES)
    (marked := tmp_path / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())
    assert list(read_log(marked)) == list(read_log(plain))
    log = load([marked])
    assert len(log.frame) == len(LINES) and not [text for text in log.warnings if "JSON" in text]
    assert log.frame["offset"].iloc[0] == 3
