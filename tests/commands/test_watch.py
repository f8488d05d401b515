"""`slim-rl watch`: one page on loopback, made anew only when there is more; and the same in the terminal."""

from __future__ import annotations

import http.client
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from slim_rl.analysis.live import LiveRun
from slim_rl.cli import main
from slim_rl.commands.watch import serving
from slim_rl.commands.watch_screen import follow, screen, sparkline
from slim_rl.errors import SlimError
from tests.analysis.synthetic import make_runs


@pytest.fixture
def lines() -> list[bytes]:
    made = make_runs(arms=("shy",), seeds=1, steps=4, games_per_step=4, group=2, n=3, eval_games=0)
    return [orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n" for dialogue in made]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.jsonl"


@contextmanager
def served(log: Path | LiveRun, every: float) -> Iterator[int]:
    """The port of a server that watches the log."""
    with serving(log if isinstance(log, LiveRun) else LiveRun(log), 0, every) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def get(port: int, path: str = "/", **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.getheader("ETag") or "", answer.read().decode()


def test_a_page_is_sent_again_only_when_the_log_has_grown(log: Path, lines: list[bytes]) -> None:
    with served(log, every=0) as port:
        status, first, page = get(port)
        assert status == 200 and "Waiting for the dialogues" in page
        assert get(port, If_None_Match=first)[0] == 304
        log.write_bytes(b"".join(lines[:16]))
        status, second, page = get(port, If_None_Match=first)
        assert status == 200 and second != first and "16 training dialogues, 2 steps" in page
        assert get(port, If_None_Match=second)[0] == 304
        assert f'data-version="{second.strip(chr(34))}"' in page, "the page knows which version it is"


def test_the_log_is_looked_at_no_oftener_than_told(log: Path, lines: list[bytes]) -> None:
    with served(log, every=3600) as port:
        log.write_bytes(b"".join(lines[:8]))
        assert "8 dialogues" in get(port)[2]
        log.write_bytes(b"".join(lines))
        assert "8 dialogues" in get(port)[2]


def test_a_configuration_that_cannot_be_read_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("slim_rl: {name: run, nonsense: 1}")
    with pytest.raises(SystemExit) as end:
        main(["watch", str(tmp_path), "--port", "0"])
    assert end.value.code == 1 and "'nonsense' is not a key" in capsys.readouterr().err


def test_a_run_that_was_looked_at_before_is_served(log: Path, lines: list[bytes]) -> None:
    log.write_bytes(b"".join(lines))
    live = LiveRun(log)
    live.look()
    with served(live, every=0) as port:
        assert "32 training dialogues" in get(port)[2]


def test_only_this_machine_is_answered_and_only_by_the_page(log: Path) -> None:
    with served(log, every=0) as port:
        assert get(port, Host=f"localhost:{port}")[0] == 200
        assert get(port, Host="127.0.0.1")[0] == get(port, Host="[::1]")[0] == 200, "as of port 80"
        assert get(port, Host=f"evil.example:{port}")[0] == get(port, Host="evil.example")[0] == 403
        assert get(port, "/../../etc/passwd")[0] == 404
        with pytest.raises(SlimError, match=rf"--port {port} cannot be used .*--port 0"):
            serving(LiveRun(log), port, 1)


def test_the_pages_policy_lets_it_ask_this_server_alone(log: Path, lines: list[bytes]) -> None:
    log.write_bytes(b"".join(lines))
    with served(log, every=0) as port:
        page = get(port)[2]
    assert "connect-src 'self'" in page and "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"https?:", page)


def test_the_terminal_shows_the_same(log: Path, lines: list[bytes]) -> None:
    log.write_bytes(b"".join(lines[:-1]) + lines[-1][:-9])
    live = LiveRun(log)
    live.look()
    out = io.StringIO()
    Console(file=out, width=120).print(screen(live))
    text = out.getvalue()
    assert live.sentences()[0] in text and "information-seeking questions per game" in text
    last = orjson.loads(lines[-2])
    assert f"game {last['game_id']}" in text and last["turns"][0]["text"].splitlines()[0] in text
    own, every = sum(span[1] - span[0] for turn in last["turns"] if (span := turn["span"])), last["tokens"]["response"]
    assert f"{own} of {every} response tokens are trained" in text
    filled = text.count("█", text.index("loss mask")) / 32
    assert filled == pytest.approx(own / every, abs=0.05)


def test_where_the_output_is_no_terminal_it_is_shown_once(
    log: Path, lines: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    for expected in ("Waiting for the dialogues of the first step in", "32 training dialogues, 4 steps"):
        with pytest.raises(SystemExit) as end:
            main(["watch", str(log), "--terminal"])
        assert end.value.code == 0 and expected in " ".join(capsys.readouterr().out.split())
        log.write_bytes(b"".join(lines))


def test_where_it_is_shown_once_its_numbers_are_worked_out_once(
    log: Path, lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slim_rl.analysis.live.READING_SECONDS", 0.0)
    log.write_bytes(b"".join(lines))
    live = LiveRun(log)
    follow(live, every=10)
    assert live.log is not None and len(live.log.frame) == len(lines) and live.version == 1


def test_a_small_curve_goes_from_its_least_to_its_most() -> None:
    assert sparkline([0.0, 1.0, 2.0, float("nan"), 7.0]) == "▁▂▃ █"
    assert sparkline([3.0, 3.0]) == "▁▁" and sparkline([]) == ""
