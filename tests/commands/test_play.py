"""The game in the terminal."""

import contextlib
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from rich.console import Console

from slim_rl.commands.play import play
from slim_rl.config import parse_config
from slim_rl.errors import SlimError
from tests.fakes.openai_server import OpenAIServer, Step
from tests.paths import ROOT


def config_of(folder: Any) -> dict[str, Any]:
    data = {"train": f"{folder}/t.jsonl", "eval": f"{folder}/e.jsonl", "num_train": 3, "num_eval": 3}
    return {"game": {"n": 2, "scales": False}, "data": data, "partner": {"args": {"accept_fraction": 0}}}


def session(folder: Any, lines: list[str], *overrides: str) -> tuple[float, str]:
    screen, typed = io.StringIO(), iter(lines)

    def ask(_: str) -> str:
        if (line := next(typed, None)) is None:
            raise EOFError
        return line

    reward = play(parse_config(config_of(folder), overrides), console=Console(file=screen, width=100), ask=ask)
    return reward, screen.getvalue()


def test_a_person_asks_proposes_and_sees_the_truth(tmp_path) -> None:
    reward, screen = session(
        tmp_path, ["What is Ava Li on BLEU?", "[propose]", "BLEU: Ava Li", "Electra: Daniel Nguyen", ""]
    )
    assert 0 < reward <= 1
    assert "Ava Li on BLEU" in screen and "[accept]" in screen
    assert "your scores" in screen and "true scores" in screen and f"reward: {reward:.2f}" in screen
    assert screen[screen.index("true scores") :].count("*") == 2, "the best plan is marked by more than colour"


def test_play_counts_refused_actions_but_not_empty_lines(tmp_path) -> None:
    plan = ["[propose]", "BLEU: Ava", "Electra: Daniel", ""]
    reward, screen = session(tmp_path, ["", "  ", "", "[accept]", "", *plan], "game.max_errors=2")
    assert "2 refused actions in a row end the game (game.max_errors)." in " ".join(screen.split())
    assert screen.count("There is no proposal to accept") == 1 and reward > 0
    reward, screen = session(tmp_path, ["[accept]", "[accept]"], "game.max_errors=2")
    assert reward == 0 and "ended: policy_errors" in screen


@pytest.mark.parametrize("lines", [["quit"], []])
def test_a_person_may_leave(tmp_path, lines) -> None:
    reward, screen = session(tmp_path, lines)
    assert reward == 0 and "true scores" in screen
    assert "An empty line ends a plan." in " ".join(screen.split())
    assert "ended: you left the game" in screen and "reward" not in screen[screen.index("ended") :]


def test_the_partner_may_open(tmp_path) -> None:
    _, screen = session(tmp_path, ["quit"], "data.seat=1")
    assert screen.index("partner>") < screen.index("ended")


def test_the_persons_board_is_shown_again_when_it_changes(tmp_path) -> None:
    questions = [f"What is {name} on {paper}?" for name in ("Ava Li", "Daniel Nguyen") for paper in ("BLEU", "Electra")]

    def boards(name: str, *overrides: str) -> int:
        (tmp_path / name).mkdir()
        knowing = ("game.p_observed=0.2", "game.p_observed_2=1.0", "game.hardness=0")
        _, screen = session(tmp_path / name, [*questions, "quit"], *knowing, *overrides)
        return sum(line.strip() == "your scores" for line in screen.splitlines())

    assert boards("shy") >= 2
    assert boards("mute", "partner.kind=mute") == 1, "nothing was told, so nothing changes"
    assert boards("scaled", "game.scales=true") == 1, "what is told on another scale cannot stand in the table"


def test_ctrl_c_ends_it_at_once(tmp_path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(config_of(tmp_path)))
    keyboard, terminal = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "slim_rl.cli", "play", config],
        stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    while b"you> " not in shown:
        shown += os.read(keyboard, 4096)
    time.sleep(0.3)  # the prompt is written just before the line is waited for
    pressed = time.monotonic()
    child.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the terminal's other end was closed
        while select.select([keyboard], [], [], 20)[0] and os.read(keyboard, 4096):
            pass
    os.close(keyboard)
    child.wait(timeout=20)
    assert child.returncode != 0 and time.monotonic() - pressed < 10


def test_an_endpoint_that_refuses_is_said_and_is_no_success(tmp_path) -> None:
    with OpenAIServer(script=[Step("status", status=403, message="Not here.")] * 3) as server:
        endpoint = [f"partner.openai.base_url={server.url}", "partner.openai.outage_wait_minutes=0"]
        with pytest.raises(SlimError, match=r"HTTP 403: Not here\."):
            session(tmp_path, ["What is Ava Li on BLEU?"], "partner.kind=openai", *endpoint)
