"""A run that is watched: what is new in its log reaches the numbers and the page, and nothing is done while there is nothing new."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest

from slim_rl.analysis.live import LiveRun
from slim_rl.analysis.load import Reader, load
from slim_rl.config import parse_config
from slim_rl.dialogue.record import Dialogue, StopReason
from tests.analysis.synthetic import make_runs, unpack

Lines = list[bytes]


@pytest.fixture(scope="module")
def lines() -> Lines:
    """A run's log: 4 held-out games, 5 steps of 8 dialogues, and the held-out games again."""
    made = make_runs(arms=("shy",), seeds=1, steps=5, games_per_step=4, group=2, n=3, eval_games=4)
    return [orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n" for dialogue in made]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "shy-0" / "train.jsonl"


def add(log: Path, content: bytes) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        file.write(content)


def shown(page: str) -> dict[str, Any]:
    return unpack(re.search(r'<script type="application/gzip" id="data">(.*?)</script>', page, re.S)[1])  # type: ignore[index]


class Texts(HTMLParser):
    """What a page says in its list of sentences."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.said: list[str] = []
        self._open = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag == "li"

    def handle_data(self, data: str) -> None:
        if self._open:
            self.said.append(data)
            self._open = False


def test_a_log_that_is_not_there_yet_is_waited_for(log: Path, lines: Lines) -> None:
    live = LiveRun(log.parent)
    assert live.look() and Texts(live.page(10)).said == [
        f"Waiting for the dialogues of the first step in {log.parent}."
    ]
    assert not live.look()
    log.parent.mkdir(parents=True)
    assert not live.look()
    log.touch()
    assert not live.look()
    add(log, lines[0])
    assert live.look() and live.log is not None and len(live.log.frame) == 1
    assert "1 held-out dialogue;" in Texts(live.page(10)).said[0]


def test_what_is_new_is_shown_and_nothing_is_done_without_it(log: Path, lines: Lines) -> None:
    add(log, b"".join(lines[:12]))
    live = LiveRun(log.parent, shown=6)
    assert live.look()
    first = live.page(10)
    numbers, version = live.numbers, live.version
    assert not live.look() and live.numbers is numbers and live.version == version
    add(log, b"".join(lines[12:20]))
    assert live.look() and live.version > version
    page = live.page(10)
    assert Texts(page).said[0].startswith("16 training dialogues and 4 held-out dialogues, 2 steps")
    newest = shown(page)["dialogues"]
    assert [d["step"] for d in newest] == [1] * 6 and shown(first)["dialogues"] != newest
    assert all(turn["span"] for d in newest for turn in d["turns"] if turn["role"] == "policy"), "the token mask"
    assert "data:image/svg+xml" in page and "Why dialogues ended" in page


def test_a_torn_line_waits_until_it_is_whole(log: Path, lines: Lines) -> None:
    add(log, b"".join(lines[:8]) + lines[8][:-40])
    live = LiveRun(log.parent)
    assert live.look() and live.log is not None
    assert len(live.log.frame) == 8 and live.log.files[0].incomplete == 1
    assert not live.look()
    add(log, lines[8][-40:])
    assert (
        live.look() and len(live.log.frame) == 9 and live.log.files[0].incomplete == 0 and live.log.files[0].lines == 9
    )


def test_a_run_that_ends_while_watched_is_said_once_it_is_quiet(tmp_path: Path, log: Path, lines: Lines) -> None:
    run = tmp_path / "runs" / "shy-0"
    config = parse_config({"name": "shy-0", "log": {"dir": str(log.parents[1])}, "train": {"steps": 5}})
    live = LiveRun(run, quiet_seconds=60)
    assert live.look() and str(run) in live.sentences()[0]
    config.write(run / "config.yaml")
    add(log, b"".join(lines[:-4]))
    assert live.look() and "5 of 5 steps" in live.sentences()[0]
    add(log.with_name("eval-000005.jsonl"), b"".join(lines[-4:]))
    assert live.look() and "8 held-out dialogues" in live.sentences()[0] and len(live.sentences()) == 2
    long_ago = time.time() - 600
    for file in log.parent.iterdir():
        os.utime(file, (long_ago, long_ago))
    assert live.look()
    assert live.sentences()[1] == "Nothing was logged for more than 1 minute: the run has ended, or it is waiting."
    assert live.sentences()[1] in Texts(live.page(10)).said and not live.look()
    page = live.page(10)
    assert "Held-out games" in page and page.count("eval, step") == 2, "before and after training"


@pytest.mark.parametrize("backend", ["slime", "verl"])
def test_of_a_clusters_run_the_folder_holds_the_log(backend: str, tmp_path: Path, lines: Lines) -> None:
    config = parse_config({"name": "far", "train": {"backend": backend, "steps": 9}})
    config.write(tmp_path / "far" / "config.yaml")
    add(tmp_path / "far" / config.log.dir / "train.jsonl", b"".join(lines[:20]))
    live = LiveRun(tmp_path / "far")
    assert live.look() and "2 of 9 steps" in live.sentences()[0]


def test_a_run_that_starts_over_or_resumes_is_read_again(log: Path, lines: Lines) -> None:
    add(log, b"".join(lines))
    live = LiveRun(log.parent)
    assert live.look() and live.log is not None and len(live.log.frame) == len(lines)
    log.with_suffix(".new").write_bytes(b"".join(lines[:20]))
    log.with_suffix(".new").replace(log)  # as a run does that resumes
    assert live.look() and len(live.log.frame) == 20
    log.unlink()
    assert live.look() and live.log is None and "Waiting for the dialogues" in live.sentences()[0]
    add(log, lines[0])
    assert live.look() and live.log is not None and len(live.log.frame) == 1


def test_failures_and_spend_are_told(log: Path, lines: Lines) -> None:
    failed = Dialogue.from_dict(orjson.loads(lines[6]))
    failed.stop_reason, failed.failure, failed.reward = StopReason.PARTNER_FAILED, "HTTP 500 <b>", None
    paid = Dialogue.from_dict(orjson.loads(lines[7]))
    paid.turns[-1].usage = {"cost_usd": 0.25, "calls": 1}
    paid.turns[-1].role = "partner"
    add(log, b"".join(lines[:6]) + b"".join(orjson.dumps(d.to_dict(tokens=False)) + b"\n" for d in (failed, paid)))
    live = LiveRun(log)
    assert live.look()
    said = live.sentences()
    assert said[1:] == [
        "1 dialogue failed (12.5%): 1 × partner failed.",
        "API calls in these dialogues cost $0.25, $0.2500 per dialogue.",
    ]
    assert "HTTP 500 &lt;b&gt;" in live.page(10)


def test_a_long_log_is_read_in_parts_that_add_up(log: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    add(log, b"".join(lines))

    def looks(live: LiveRun) -> Iterator[int]:
        while live.look():
            assert live.log is not None
            yield len(live.log.frame)

    monkeypatch.setattr("slim_rl.analysis.live.READING_SECONDS", 0.0)
    live = LiveRun(log)
    assert list(islice(looks(live), 3)) == [1, 2, 3]
    assert any("of the log is read so far" in said for said in live.sentences())
    assert list(looks(live))[-1] == len(lines) and not live.behind
    assert live.log is not None and live.log.frame.equals(load([log]).frame)


def test_a_reader_reads_each_line_once(log: Path, lines: Lines) -> None:
    reader = Reader([log.parent])
    add(log, b"".join(lines[:3]) + b"no JSON\n" + b'{"other": 1}\n')
    assert reader.more() and not reader.more()
    add(log.with_name("more.jsonl"), b"".join(lines[3:5]))
    assert reader.more()
    files = reader.log().files
    assert [(f.lines, f.dialogues, f.unreadable, f.foreign) for f in files] == [(5, 3, 1, 1), (2, 2, 0, 0)]
