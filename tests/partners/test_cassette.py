"""The cassette: one answer a key, whatever processes do to it, and whatever happens to them."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn, Usage
from slim_rl.errors import ConfigError
from slim_rl.partners import answers
from slim_rl.partners.cassette import TABLE, Cassette, request_key
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import (
    ANSWER,
    QUESTION,
    VIEW,
    ask_many,
    partner_of,
    recorded,
    script,
    started,
    view_after,
)


def test_a_key_is_of_the_whole_request_and_the_seed() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "é\ud800"}], "temperature": 0.0}
    others = [(request, 2), (request | {"temperature": 1.0}, 1), (request | {"messages": []}, 1)]
    assert len({request_key(*each) for each in [(request, 1), *others]}) == 4
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


async def test_only_what_is_missing_is_asked_for_and_recorded(server: OpenAIServer, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    script(server, Step("status", status=500), Step("junk"))
    for wanted in (1, 1, 2):
        partner = partner_of(server, cassette=path)
        assert all(isinstance(outcome, Turn) for outcome in await ask_many(partner, wanted))
    assert len(server.requests) == 2 + 2 and len(recorded(path)) == 2


async def test_equal_requests_at_once_have_one_answer(server: OpenAIServer, tmp_path: Path) -> None:
    path, server.latency = tmp_path / "a.sqlite", 0.02
    said = iter(f"[message] {number}" for number in range(9))
    server.answer = lambda body: next(said)
    partner = partner_of(server, cassette=path)
    view = view_after(QUESTION)
    replies = await asyncio.gather(*(partner.act(view) for _ in range(4)))
    again = await partner.act(view)
    assert {reply.text for reply in replies} == {again.text} and len(recorded(path)) == 1
    assert partner.endpoint.spend.total.calls == len(server.requests) <= 4


PROCESS = """
import sys
from pathlib import Path
from slim_rl.partners.cassette import Cassette
cassette, name = Cassette(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    print(cassette.keep(f"k{number}", {"words": "x" * 5000}, 0, {"text": f"{name} {number}"})["text"], flush=True)
"""


def test_two_processes_on_one_cassette_have_one_answer_a_key(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with started(PROCESS, *[[str(path), name, "400"] for name in ("one", "two")]) as processes:
        first, second = (process.communicate(timeout=60)[0].splitlines() for process in processes)
    assert len(first) == 400 and first == second
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"], "no process has it open: it is one file"
    kept = {row["key"]: row["answer"]["text"] for row in recorded(path)}
    assert [kept[f"k{number}"] for number in range(400)] == first and len(kept) == 400


def test_kill_in_mid_write_loses_no_answer(tmp_path: Path) -> None:
    """What `keep` has returned is there, and what it was about is whole or absent."""
    path = tmp_path / "a.sqlite"
    with started(PROCESS, [str(path), "answer", str(10**9)]) as (process,):
        time.sleep(0.2)
        process.kill()
        count = process.communicate()[0].count("\n")
    cassette = Cassette(path)
    assert count > 3 and count <= len(recorded(path)) <= count + 1
    assert [cassette.get(f"k{number}") for number in range(count)] == [{"text": f"answer {n}"} for n in range(count)]
    assert cassette.keep("after", {}, 0, {"text": "later"}) == {"text": "later"}
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_lock_that_is_never_released_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slim_rl.partners.cassette.BUSY_SECONDS", 0.05)
    path = tmp_path / "a.sqlite"
    cassette = Cassette(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN").execute("SELECT * FROM answers").fetchone()
        assert cassette.keep("k0", {}, 0, {"text": "one"}) and cassette.trouble is None, "a reader stops no writer"
        other.execute("ROLLBACK").execute("BEGIN IMMEDIATE")
        assert cassette.keep("k", {}, 0, {"text": "one"}) == {"text": "one"}
        assert cassette.trouble is not None and "database is locked. Make it writable" in cassette.trouble
    assert cassette.keep("k", {}, 0, {"text": "one"}) == cassette.get("k") and cassette.trouble is None
    assert Cassette(path).keep("k", {}, 0, {"text": "second"}) == {"text": "one"} and len(recorded(path)) == 2


# --- files of something else


OTHERS = {
    "its own": ("PRAGMA journal_mode = WAL", "CREATE TABLE notes (id INTEGER)"),
    "of the name": ("PRAGMA user_version = 3", "CREATE TABLE answers (question TEXT)"),
    "beside": ("CREATE TABLE notes (id INTEGER)", f"CREATE TABLE {TABLE}"),
    "lines": (),
}


@pytest.mark.parametrize("statements", OTHERS.values(), ids=OTHERS)
def test_cassette_file_of_something_else_is_refused_untouched(tmp_path: Path, statements: tuple[str, ...]) -> None:
    path = tmp_path / "other.sqlite"
    path.write_bytes(b"" if statements else b'{"game_id": "g1", "table": [[1]]}\n' * 2)
    for statement in statements:
        with closing(sqlite3.connect(path)) as db:
            db.execute(statement)
            db.commit()
    before = path.read_bytes()
    refused = r"other\.sqlite cannot be read as a cassette, and was not changed: .+another file"
    for replays in (False, True):
        with pytest.raises(ConfigError, match=refused):
            Cassette(path, replays)
        assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["other.sqlite"]


def test_cassette_empty_file_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.touch()
    assert Cassette(path).keep("k", {}, 0, {"text": "one"}) == {"text": "one"} and len(recorded(path)) == 1
    assert path.read_bytes()[18] == 1, "closed, it needs no second file: read-only media will do"


NO_ANSWERS = [b"\xff\xfe\x00", "[" * 100_000, None, "7", "null", "not json", "{}", '["text"]', '{"text": 5}']
NO_FIELDS = ('"finish_reason": [], "model": 1', '"refused": 3', '"thought": {}')
NO_ANSWERS += [f'{{"text": "x", {field}}}' for field in NO_FIELDS]


@pytest.mark.parametrize("bad", NO_ANSWERS, ids=range(len(NO_ANSWERS)))
async def test_cassette_row_without_an_answer_is_not_recorded(server: OpenAIServer, tmp_path: Path, bad: Any) -> None:
    path = tmp_path / "a.sqlite"
    await partner_of(server, cassette=path).act(VIEW)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE answers SET answer = ?", (bad,))
        db.commit()
    with pytest.raises(PartnerFailure, match="has no answer to request"):
        await partner_of(server, cassette=path, cassette_mode="replay").act(VIEW)
    for _ in range(2):
        assert (await partner_of(server, cassette=path).act(VIEW)).text == ANSWER
    assert len(server.requests) == 2, "it is asked for once, and kept"


# --- a model that refuses parameters


async def test_cassette_is_addressed_by_what_the_config_asks(server: OpenAIServer, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    await partner_of(server, cassette=path).act(view_after(QUESTION, seed=0))  # which it takes all
    server.refuses = ("max_tokens", "temperature", "top_p", "seed")
    partner = partner_of(server, cassette=path)
    first, second = (view_after(QUESTION, seed=seed) for seed in (1, 2))
    await partner.act(first)  # before anything is learned
    await partner.act(second)  # and after
    before, row, _ = recorded(path)
    assert "refused" not in before["answer"] and "reasoning_effort" not in before["request"]
    asked = {"model": server.model, "temperature": 0.0, "max_tokens": 300, "messages": partner.messages(first)}
    assert row["key"] == request_key(asked | {"seed": 1}, 1)
    sent = len(server.times)
    replayer = partner_of(server, cassette=path, cassette_mode="replay")
    assert [(await replayer.act(view)).text for view in (first, second)] == [ANSWER] * 2
    assert replayer.identity == partner.identity, "a replay is credited with no more than what was recorded"
    again = partner_of(server, cassette=path)
    assert (await again.act(first)).text == ANSWER and len(server.times) == sent
    await again.act(view_after(QUESTION, seed=3))
    assert len(server.times) == sent + 1, "what the cassette tells of the model need not be learned again"


async def test_replayed_words_are_cut_as_live_ones_are(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = lambda body: "[message] " + "so " * 1000
    partner = partner_of(server, cassette=tmp_path / "a.sqlite")
    await partner.act(VIEW)
    monkeypatch.setattr(answers, "REPLY_CHARS", 50)
    for mode in ("replay", "auto"):
        short = partner_of(server, cassette=tmp_path / "a.sqlite", cassette_mode=mode).endpoint
        kept = await short.ask(partner.messages(VIEW), VIEW.seed)
        assert len(kept.text) == 50 and kept.finish_reason == "length"
