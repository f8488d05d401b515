"""Held-out games: what an earlier try has played is not played again, and no more is given back than was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slim_rl.config import parse_config
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.held_out import play_held_out
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import MutePartner
from slim_rl.games.matching.state import MatchingSettings

ROWS = [GameRow(game.id, 0, game.to_dict(), []) for game in generate_games(4, MatchingSettings(n=3), seed=1)]


def played(log: Path, rows: list[GameRow], **config: Any) -> list[str]:
    worker = RolloutWorker(parse_config(config), None, MutePartner())
    return [dialogue.id for dialogue in play_held_out(worker, rows, log, step=None)]


def test_fewer_games_than_before_are_as_many_as_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    whole = played(log, ROWS)
    assert len(whole) == len(set(whole)) == 4
    assert played(log, ROWS[:2]) == whole[:2]
    assert len(list(read_log(log))) == 4


def test_in_self_play_a_seat_that_is_missing_is_played_again(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    whole = played(log, ROWS[:2], partner={"kind": "self"})
    assert len(whole) == 4
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))  # as a crash leaves it
    assert played(log, ROWS[:2], partner={"kind": "self"}) == whole
    assert sorted(dialogue.id for dialogue in read_log(log)) == sorted(whole)
