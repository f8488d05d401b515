"""The cassette: one answer a key, whatever processes do to it, and whatever happens to them."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn, Usage
from slim_rl.errors import ConfigError
from slim_rl.partners.cassette import Cassette, request_key
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import QUESTION, partner_of, recorded, view_after
from tests.paths import ROOT


def test_a_key_is_of_the_whole_request_and_the_seed() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "é\ud800"}], "temperature": 0.0}
    keys = {
        request_key(request, 1),
        request_key(request, 2),
        request_key(request | {"temperature": 1.0}, 1),
        request_key(request | {"messages": []}, 1),
    }
    assert len(keys) == 4
    assert request_key(dict(reversed(request.items())), 1) == request_key(request, 1)


async def test_a_recorded_game_is_replayed_without_network(tmp_path: Path) -> None:
    path = tmp_path / "cassettes" / "a.sqlite"
    views = [view_after(QUESTION, seed=seed) for seed in range(3)]
    async with OpenAIServer() as server:
        said = iter(["[malformed]", "[message] one", "[message] two", "[message] three"])
        server.answer = lambda body: next(said)
        recorder = partner_of(server, cassette=path)
        recorded = [await recorder.act(view) for view in views]
        again = await recorder.act(views[0])
        assert again.text == recorded[0].text and len(server.requests) == 4
    replayer = partner_of(server, cassette=path, cassette_mode="replay")  # the server is gone
    replayed = [await replayer.act(view) for view in views]
    assert [reply.text for reply in replayed] == ["[message] one", "[message] two", "[message] three"]
    assert replayed[0].usage == Usage(malformed=1, model=server.model), "nothing was asked, nothing paid"
    with pytest.raises(PartnerFailure, match=r"no answer to request [0-9a-f]{64}") as failure:
        await replayer.act(view_after(QUESTION, seed=99))
    assert failure.value.reason is StopReason.PARTNER_FAILED


async def test_auto_asks_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    async with OpenAIServer() as server:
        for wanted in (1, 1, 2):
            partner = partner_of(server, cassette=path)
            for seed in range(wanted):
                assert isinstance(await partner.act(view_after(QUESTION, seed=seed)), Turn)
        assert len(server.requests) == 2


async def test_equal_requests_at_once_have_one_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    async with OpenAIServer(latency=0.02) as server:
        said = iter(f"[message] {number}" for number in range(9))
        server.answer = lambda body: next(said)
        partner = partner_of(server, cassette=path)
        view = view_after(QUESTION)
        replies = await asyncio.gather(*(partner.act(view) for _ in range(4)))
        again = await partner.act(view)
    assert {reply.text for reply in replies} == {again.text} and len(recorded(path)) == 1
    assert partner.endpoint.spend.total.calls == len(server.requests) <= 4


async def test_failed_requests_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    async with OpenAIServer(script=[Step("status", status=500), Step("junk")]) as server:
        await partner_of(server, cassette=path).act(view_after(QUESTION))
    assert len(recorded(path)) == 1


RECORDER = """
import sys
from pathlib import Path
from typing import Any
from slim_rl.partners.cassette import Cassette
path, name = Path(sys.argv[1]), sys.argv[2]
cassette = Cassette(path)
print("ready", flush=True)
sys.stdin.readline()
for number in range(400):
    stands = cassette.keep(f"k{number}", {"n": number}, 0, {"text": f"{name} {number}"})
    print(stands["text"])
"""


def test_two_processes_on_one_cassette_have_one_answer_a_key(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RECORDER, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for name in ("one", "two")
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert len(said[0]) == 400 and said[0] == said[1]
    kept = {row["key"]: row["answer"]["text"] for row in recorded(path)}
    assert [kept[f"k{number}"] for number in range(400)] == said[0] and len(kept) == 400


def test_a_lock_that_is_never_released_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slim_rl.partners.cassette.BUSY_SECONDS", 0.05)
    path = tmp_path / "a.sqlite"
    cassette = Cassette(path)
    cassette.keep("k0", {}, 0, {"text": "zero"})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert cassette.keep("k", {}, 0, {"text": "one"}) == {"text": "one"}
        assert cassette.trouble is not None and "database is locked. Make it writable" in cassette.trouble
    assert cassette.keep("k", {}, 0, {"text": "one"}) == cassette.get("k") and cassette.trouble is None


def test_what_another_process_recorded_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    one, two = Cassette(path), Cassette(path)
    one.keep("k", {}, 0, {"text": "first"})
    assert two.get("k") == {"text": "first"}
    assert two.keep("k", {}, 0, {"text": "second"}) == {"text": "first"}
    assert len(recorded(path)) == 1


def test_replay_needs_a_cassette(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Cassette(tmp_path / "none.sqlite", replays=True)


KEEPS = """
import sys
from pathlib import Path
from typing import Any
from slim_rl.partners.cassette import Cassette
cassette, number = Cassette(Path(sys.argv[1])), 0
while True:
    cassette.keep(f"k{number}", {"words": "x" * 5000}, 0, {"text": f"answer {number}"})
    print(number, flush=True)
    number += 1
"""


def test_a_kill_in_mid_write_loses_no_answer(tmp_path: Path) -> None:
    """What `keep` has returned is there, and what it was about is whole or absent."""
    for attempt in range(4):
        path = tmp_path / f"{attempt}.sqlite"
        process = subprocess.Popen(
            [sys.executable, "-c", KEEPS, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert process.stdout is not None and process.stdout.readline() == "0\n"
        time.sleep(0.05 + attempt * 0.013)
        process.kill()
        said = 1 + len([line for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")])
        process.wait()
        cassette = Cassette(path)
        assert said > 3 and said <= len(recorded(path)) <= said + 1
        assert [cassette.get(f"k{number}") for number in range(said)] == [
            {"text": f"answer {number}"} for number in range(said)
        ]
        assert cassette.keep("after", {}, 0, {"text": "later"}) == {"text": "later"}
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_cassette_that_no_process_has_open_is_one_file(tmp_path: Path) -> None:
    recorder = [sys.executable, "-c", RECORDER, str(tmp_path / "a.sqlite"), "one"]
    subprocess.run(recorder, input="go\n", text=True, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"]
    assert len(recorded(tmp_path / "a.sqlite")) == 400


# --- files of something else


def _other(path: Path, kind: str) -> None:
    """Writes a file that is no cassette."""
    if kind == "lines":
        path.write_bytes(b'{"game_id": "g1", "table": [[1]]}\n' * 2)
        return
    with closing(sqlite3.connect(path)) as db:
        columns = {
            "its own": "notes (id INTEGER)",
            "of the name": "answers (question TEXT)",
            "beside": "notes (id INTEGER)",
        }
        db.execute("PRAGMA journal_mode = WAL" if kind == "its own" else "PRAGMA user_version = 3")
        db.execute(f"CREATE TABLE {columns[kind]}")
        if kind == "beside":
            db.execute(
                "CREATE TABLE answers (key TEXT PRIMARY KEY, seed INTEGER, request TEXT, answer TEXT, recorded REAL)"
            )
        db.commit()


@pytest.mark.parametrize("kind", ["lines", "its own", "of the name", "beside"])
@pytest.mark.parametrize("replays", [False, True])
def test_cassette_file_of_something_else_is_refused_untouched(tmp_path: Path, kind: str, replays: bool) -> None:
    path = tmp_path / "other.sqlite"
    _other(path, kind)
    before = path.read_bytes()
    with pytest.raises(
        ConfigError, match=r"other\.sqlite cannot be read as a cassette, and was not changed: .+another file"
    ):
        Cassette(path, replays)
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["other.sqlite"]


def test_cassette_empty_file_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").touch()
    cassette = Cassette(tmp_path / "a.sqlite")
    assert cassette.keep("k", {}, 0, {"text": "one"}) == {"text": "one"} and len(recorded(tmp_path / "a.sqlite")) == 1


NO_ANSWERS = [
    b"\xff\xfe\x00",
    "[" * 100_000,
    "7",
    "null",
    "not json",
    None,
    '["text"]',
    '{"text": 5}',
    '{"text": "x", "finish_reason": [], "model": 1}',
    '{"text": "x", "refused": 3}',
    '{"text": "x", "thought": {}}',
    "{}",
]


@pytest.mark.parametrize("bad", NO_ANSWERS, ids=range(len(NO_ANSWERS)))
async def test_cassette_row_without_an_answer_is_not_recorded(tmp_path: Path, bad: Any) -> None:
    path = tmp_path / "a.sqlite"
    async with OpenAIServer() as server:
        recorder = partner_of(server, cassette=path)
        good = await recorder.act(view_after(QUESTION))
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE answers SET answer = ?", (bad,))
            db.commit()
        with pytest.raises(PartnerFailure, match="has no answer to request"):
            await partner_of(server, cassette=path, cassette_mode="replay").act(view_after(QUESTION))
        for _ in range(2):
            assert (await partner_of(server, cassette=path).act(view_after(QUESTION))).text == good.text
        assert len(server.requests) == 2, "it is asked for once, and kept"
