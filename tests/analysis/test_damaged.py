"""Damaged files of other people: one sentence, or not counted and said; never a traceback."""

from __future__ import annotations

import copy
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw
from rich.console import Console

from slim_rl.analysis import analyze
from slim_rl.analysis.load import load, row_of
from slim_rl.commands.show import show
from slim_rl.dialogue.log import of_line, read_log
from slim_rl.errors import DataError
from tests.analysis import synthetic

Lines = list[dict[str, Any]]
VALUES: list[Any] = [None, True, False, 0, -1, 3.7, 1e308, 10**18, "x", "", [], {}, [None], [1], {"a": 1}, [[[]]]]
MADE = synthetic.make_runs(("shy",), seeds=1, steps=2, games_per_step=2, n=3, eval_games=3)
LINES: Lines = [orjson.loads(orjson.dumps(dialogue.to_dict(tokens=False))) for dialogue in MADE]


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


def write(path: Path, lines: Lines, before: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(before + b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return path


@settings(max_examples=150, deadline=None)
@given(draw.integers(0, 2**32))
def test_a_mutated_line_is_read_or_refused_by_all_readers(seed: int) -> None:
    line = mutated(random.Random(seed))
    try:
        dialogue = of_line(line)
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


@pytest.mark.parametrize(
    ("key", "value"),
    [("reward", True), ("reward", "1"), ("seat", 2), ("turns", [{}]), ("prompt", [{"role": "user"}]), ("step", -1)],
)
def test_a_wrong_line_is_named_by_file_number_and_key(tmp_path: Path, key: str, value: Any) -> None:
    log = write(tmp_path / "a.jsonl", [LINES[0], {**LINES[1], key: value}])
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: not a dialogue's line \(it.* {key}.*; remove the line"):
        list(read_log(log))
    assert load([log]).files[0].foreign == 1


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    plain, marked = (write(tmp_path / n / "train.jsonl", LINES, b) for n, b in (("a", b""), ("b", b"\xef\xbb\xbf")))
    assert list(read_log(marked)) == list(read_log(plain))
    log = load([marked])
    assert len(log.frame) == len(LINES) and not [text for text in log.warnings if "JSON" in text]
    assert log.frame["offset"].iloc[0] == 3


def test_links_to_nothing_and_folders_among_logs_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", LINES)
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.jsonl").mkdir()
    assert len(load([tmp_path]).frame) == len(list(read_log(tmp_path))) == len(LINES)
