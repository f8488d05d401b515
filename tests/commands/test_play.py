"""The game in the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from slim_rl.commands.play import play
from slim_rl.config import parse_config


def session(tmp_path: Any, lines: list[str], *overrides: str) -> tuple[float, str]:
    data = {
        "game": {"n": 2, "scales": False},
        "data": {"train": f"{tmp_path}/t.jsonl", "eval": f"{tmp_path}/e.jsonl", "num_train": 3, "num_eval": 3},
        "partner": {"kind": "shy", "accept_fraction": 0},
    }
    screen = io.StringIO()
    typed = iter(lines)

    def ask(_: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    reward = play(parse_config(data, overrides), console=Console(file=screen, width=100), ask=ask)
    return reward, screen.getvalue()


def test_a_person_asks_proposes_and_sees_the_truth(tmp_path) -> None:
    reward, screen = session(
        tmp_path, ["What is Ava Li on BLEU?", "[propose]", "BLEU: Ava Li", "Electra: Daniel Nguyen", ""]
    )
    assert 0 < reward <= 1
    assert "Ava Li on BLEU" in screen and "[accept]" in screen
    assert "your scores" in screen and "true scores" in screen and f"reward: {reward:.2f}" in screen


def test_a_slip_is_explained_and_the_game_goes_on(tmp_path) -> None:
    reward, screen = session(tmp_path, ["[accept]", "[propose]", "BLEU: Ava", "Electra: Daniel", ""])
    assert "There is no proposal to accept" in screen and reward > 0


@pytest.mark.parametrize("lines", [["quit"], []])
def test_a_person_may_leave(tmp_path, lines) -> None:
    reward, screen = session(tmp_path, lines)
    assert reward == 0 and "true scores" in screen


def test_the_partner_may_open(tmp_path) -> None:
    _, screen = session(tmp_path, ["quit"], "data.seat=1")
    assert screen.index("partner>") < screen.index("ended")
