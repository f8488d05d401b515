"""The cassette: one answer a key, whatever processes do to it, and whatever happens to them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.partner import PartnerFailure, Reply, Usage
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import ConfigError, DataError
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
        said = iter(["malformed", "[message] one", "[message] two", "[message] three"])
        server.answer = lambda body: next(said)
        recorder = partner_of(server, cassette=path, cassette_mode="record")
        recorded = [await recorder.reply(view) for view in views]
        again = await recorder.reply(views[0])
        assert again.text == recorded[0].text and len(server.requests) == 4
    replayer = partner_of(server, cassette=path, cassette_mode="replay")  # the server is gone
    replayed = [await replayer.reply(view) for view in views]
    assert [reply.text for reply in replayed] == ["[message] one", "[message] two", "[message] three"]
    assert replayed[0].usage == Usage(malformed=1, model=server.model), "nothing was asked, nothing paid"
    with pytest.raises(PartnerFailure, match=r"no answer to request [0-9a-f]{64}") as failure:
        await replayer.reply(view_after(QUESTION, seed=99))
    assert failure.value.reason is StopReason.PARTNER_FAILED


async def test_auto_asks_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    async with OpenAIServer() as server:
        for wanted in (1, 1, 2):
            partner = partner_of(server, cassette=path)
            for seed in range(wanted):
                assert isinstance(await partner.reply(view_after(QUESTION, seed=seed)), Reply)
        assert len(server.requests) == 2
        fresh = partner_of(server, cassette=path, cassette_mode="record")
        server.answer = lambda body: "[message] again"
        await fresh.reply(view_after(QUESTION, seed=0))
        assert len(server.requests) == 3
    replayer = partner_of(server, cassette=path, cassette_mode="replay")
    assert (await replayer.reply(view_after(QUESTION, seed=0))).text == "[message] again"


async def test_the_same_asked_twice_at_once_has_one_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    async with OpenAIServer(latency=0.02) as server:
        said = iter(["[message] one", "[message] two"])
        server.answer = lambda body: next(said)
        partner = partner_of(server, cassette=path)
        view = view_after(QUESTION)
        replies = await asyncio.gather(*(partner.reply(view) for _ in range(4)))
    assert len(server.requests) == 1 and {reply.text for reply in replies} == {"[message] one"}
    assert sorted(reply.usage.calls for reply in replies) == [0, 0, 0, 1], "paid once"
    assert len(recorded(path)) == 1


async def test_who_waits_for_the_same_request_asks_when_it_came_to_nothing(tmp_path: Path) -> None:
    async with OpenAIServer(latency=0.05) as server:
        partner = partner_of(server, cassette=tmp_path / "a.sqlite")
        first, *others = (asyncio.create_task(partner.reply(view_after(QUESTION))) for _ in range(3))
        while not server.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        first.cancel()
        replies = await asyncio.gather(*others)
    assert first.cancelled() and all(isinstance(reply, Reply) for reply in replies) and len(server.requests) == 2


async def test_failed_requests_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    async with OpenAIServer(script=[Step("status", status=500), Step("junk")]) as server:
        await partner_of(server, cassette=path).reply(view_after(QUESTION))
    assert len(recorded(path)) == 1


RECORDER = """
import sys
from pathlib import Path
from slim_rl.partners.cassette import Cassette
path, name, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
cassette = Cassette(path, mode)
print("ready", flush=True)
sys.stdin.readline()
for number in range(400):
    stands = cassette.keep(f"k{number}", {"n": number}, 0, {"text": f"{name} {number}"})
    print(stands["text"])
"""


@pytest.mark.parametrize("mode", ["auto", "record"])
def test_two_processes_on_one_cassette_have_one_answer_a_key(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.sqlite"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RECORDER, str(path), name, mode],
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
    monkeypatch.setattr("slim_rl.partners.store.BUSY_SECONDS", 0.05)
    path = tmp_path / "a.sqlite"
    cassette = Cassette(path)
    cassette.keep("k0", {}, 0, {"text": "zero"})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DataError, match="keeps it locked; make it writable"):
            cassette.keep("k", {}, 0, {"text": "one"})
        assert cassette.trouble is not None
    cassette.flush()
    assert cassette.get("k") == {"text": "one"} and cassette.trouble is None


def test_what_another_process_recorded_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    one, two = Cassette(path), Cassette(path)
    one.keep("k", {}, 0, {"text": "first"})
    assert two.get("k") == {"text": "first"}
    assert two.keep("k", {}, 0, {"text": "second"}) == {"text": "first"}
    assert len(recorded(path)) == 1


def test_replay_needs_a_cassette(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Cassette(tmp_path / "none.sqlite", "replay")


def test_an_answer_replaces_the_one_of_an_earlier_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    Cassette(path).keep("k", {}, 0, {"text": "first"})
    again = Cassette(path, "record")
    assert again.get("k") is None
    assert again.keep("k", {}, 0, {"text": "second"}) == again.keep("k", {}, 0, {"text": "third"}) == {"text": "second"}
    assert Cassette(path).get("k") == {"text": "second"} and len(recorded(path)) == 1


KEEPS = """
import sys
from pathlib import Path
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
        assert said > 3 and said <= len(cassette) <= said + 1
        assert [cassette.get(f"k{number}") for number in range(said)] == [
            {"text": f"answer {number}"} for number in range(said)
        ]
        assert cassette.keep("after", {}, 0, {"text": "later"}) == {"text": "later"}
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_cassette_that_no_process_has_open_is_one_file(tmp_path: Path) -> None:
    recorder = [sys.executable, "-c", RECORDER, str(tmp_path / "a.sqlite"), "one", "auto"]
    subprocess.run(recorder, input="go\n", text=True, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"]
    assert len(recorded(tmp_path / "a.sqlite")) == 400


# --- cassettes of JSON lines, which older versions wrote


def line(key: str, text: str) -> bytes:
    entry = {"key": key, "seed": 3, "request": {"model": "m", "words": "é"}, "answer": {"text": text, "model": "m"}}
    return json.dumps(entry).encode() + b"\n"


OLD = line("k1", "first") + line("k2", "two") + line("k1", "last")


async def test_old_lines_are_replayed_and_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    async with OpenAIServer() as server:
        partner = partner_of(server)
        body = partner.endpoint.body(partner.messages(view_after(QUESTION)), 7)
    path.write_bytes(OLD + line(request_key(body, 7), "[message] As I said."))
    replayer = partner_of(server, cassette=path, cassette_mode="replay")  # the server is gone
    before = path.read_bytes()
    assert (await replayer.reply(view_after(QUESTION))).text == "[message] As I said."
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["auto", "replay"])
def test_of_old_lines_of_one_key_the_last_one_stands(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "old.jsonl"
    path.write_bytes(OLD)
    cassette = Cassette(path, mode)
    assert cassette.get("k1") == {"text": "last", "model": "m"} and cassette.get("k2") == {"text": "two", "model": "m"}
    assert len(cassette) == 2


def test_what_is_recorded_beside_old_lines_joins_them(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_bytes(OLD)
    one, two = Cassette(path), Cassette(path)
    one.keep("k3", {"model": "m"}, 1, {"text": "three"})
    assert two.get("k3") == {"text": "three"}
    assert {row["key"]: row["answer"]["text"] for row in recorded(path)} == {"k1": "last", "k2": "two", "k3": "three"}
    assert [row["request"] for row in recorded(path) if row["key"] == "k1"] == [{"model": "m", "words": "é"}]


def test_old_lines_that_cannot_be_replaced_are_said(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_bytes(OLD)
    (tmp_path / "old.jsonl.lock").mkdir()  # which is to be a file
    with pytest.raises(ConfigError, match=r"old\.jsonl of JSON lines a sqlite file: .*only replay it"):
        Cassette(path)
    assert path.read_bytes() == OLD and Cassette(path, "replay").get("k2") == {"text": "two", "model": "m"}


def test_two_processes_on_old_lines_lose_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_bytes(b"".join(line(f"old{number}", "kept") for number in range(2000)))
    recorders = [[sys.executable, "-c", RECORDER, str(path), name, "auto"] for name in ("one", "two")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for command in recorders
    ]
    said = [process.communicate("go\n", timeout=60)[0].splitlines()[1:] for process in processes]
    assert said[0] == said[1]
    assert len(Cassette(path)) == 2400


def test_a_torn_line_is_skipped_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "old.jsonl"
    path.write_bytes(line("k1", "one") + b'{"key": "k2", "ans')
    cassette = Cassette(path)
    assert cassette.get("k1") == {"text": "one", "model": "m"} and cassette.get("k2") is None
    assert "1 torn line" in caplog.text
    cassette.keep("k3", {}, 0, {"text": "three"})
    assert len(Cassette(path)) == 2


@pytest.mark.parametrize(
    "torn",
    [
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"7",
        b"null",
        b'{"key": ["a"], "answer": {"text": "x"}}',
        b'{"key": "k", "answer": "x"}',
        b'{"key": "k", "answer": {"text": 5}}',
        b'{"key": "k", "answer": {"text": "x", "finish_reason": [], "model": 1}}',
        b'{"key": "k"}',
        b'{"key": "k", "answer": {"text": 1e400}}',
    ],
    ids=range(10),
)
@pytest.mark.parametrize("mode", ["auto", "replay"])
def test_a_malformed_line_counts_as_not_recorded(tmp_path: Path, torn: bytes, mode: Any) -> None:
    path = tmp_path / "old.jsonl"
    path.write_bytes(line("good", "one") + torn + b"\n")
    cassette = Cassette(path, mode)
    assert cassette.get("k") is None and cassette.get("good") == {"text": "one", "model": "m"} and len(cassette) == 1


@pytest.mark.parametrize(
    "content",
    [
        b'{"game_id": "g1", "table": [[1]]}\n' * 2,
        b"partner:\n  kind: shy\n",
        line("k1", "one") + b"7\n" + line("k2", "two"),
    ],
    ids=["games", "yaml", "a line in the middle"],
)
def test_a_file_that_is_no_cassette_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "games.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"games\.jsonl is not a .*name another file in partner\.openai\.cassette"):
        Cassette(path)
    assert path.read_bytes() == content
