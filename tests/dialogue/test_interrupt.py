"""Ctrl-C ends play among players that never wait: no further game is begun, what was played is kept, and the rest is played later."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.evaluation import play_held_out
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Turn
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import View
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import MutePartner
from slim_rl.games.matching.state import MatchingSettings

ROWS = [GameRow(game.id, 0, game.to_dict(), []) for game in generate_games(12, MatchingSettings(n=3), seed=1)]


class CtrlC(Partner):
    """Presses it in the third game, then goes on as the mute player does."""

    identity: ClassVar[dict[str, Any]] = {"kind": "ctrl-c"}

    def __init__(self) -> None:
        self.mute, self.seeds = MutePartner(), set[int]()

    async def act(self, view: View) -> Turn:
        if view.seed not in self.seeds:
            self.seeds.add(view.seed)
            if len(self.seeds) == 3:
                signal.raise_signal(signal.SIGINT)
        return await self.mute.act(view)


def test_ctrl_c_starts_no_game_and_the_rest_resumes(tmp_path: Path) -> None:
    config = parse_config({"partner": {"kind": "mute"}, "game": {"n": 3}})
    log, player = tmp_path / "cell.jsonl", CtrlC()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            play_held_out(RolloutWorker(config, None, player), ROWS, log, step=None)
    finally:
        signal.signal(signal.SIGINT, before)
    kept = [dialogue.id for dialogue in read_log(log)]
    assert len(player.seeds) == len(kept) == 3
    play_held_out(RolloutWorker(config, None, MutePartner()), ROWS, log, step=None)
    ids = [dialogue.id for dialogue in read_log(log)]
    assert ids[:3] == kept and len(ids) == len(set(ids)) == len(ROWS)
