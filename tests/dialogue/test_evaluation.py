"""Held-out games: none is played twice, and Ctrl-C begins no further one."""

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from slim_rl.backends.ready import check_games
from slim_rl.config import parse_config
from slim_rl.dialogue.evaluation import play_held_out
from slim_rl.dialogue.games_file import GameRow, write_rows
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import View
from slim_rl.errors import DataError
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import MutePartner
from slim_rl.games.matching.state import MatchingSettings

TWELVE = [GameRow(game.id, 0, game.to_dict(), []) for game in generate_games(12, MatchingSettings(n=3), seed=1)]
ROWS = TWELVE[:4]


class Written(MutePartner):
    """A partner by a prompt."""

    identity: ClassVar[dict[str, Any]] = {"kind": "mute", "prompt_sha256": "first"}


def played(log: Path, rows: list[GameRow], **config: Any) -> list[str]:
    worker = RolloutWorker(parse_config(config), None, Written())
    return [dialogue.id for dialogue in play_held_out(worker, rows, log, step=None)]


def test_fewer_games_than_before_are_as_many_as_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    whole = played(log, ROWS)
    assert len(whole) == len(set(whole)) == 4
    assert played(log, ROWS[:2]) == whole[:2]
    assert len(list(read_log(log))) == 4


def test_failed_dialogues_are_played_again(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    played(log, ROWS[:2])
    first, second = read_log(log)
    first.stop_reason, first.reward = StopReason.DEADLINE, None
    log.unlink()
    with DialogueLog(log) as writer:
        writer.append(first)
        writer.append(second)
    assert played(log, ROWS[:2]) == [first.id, second.id]
    assert [dialogue.failed for dialogue in read_log(log)] == [False, False] and log.read_bytes().count(b"\n") == 3


def test_other_games_of_the_same_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.jsonl"
    played(log, ROWS[:2])
    swapped = replace(ROWS[1], game_state=ROWS[2].game_state)
    sentence = rf"log.jsonl holds another game as {ROWS[1].game_id}: the games file has changed"
    with pytest.raises(DataError, match=sentence):
        played(log, [ROWS[0], swapped])
    log.unlink()
    assert len(played(log, [ROWS[0], swapped])) == 2
    monkeypatch.setitem(Written.identity, "prompt_sha256", "second")
    with pytest.raises(DataError, match="holds dialogues with another prompt: its file has changed"):
        played(log, [ROWS[0]])


def test_run_is_not_resumed_with_other_training_games(tmp_path: Path) -> None:
    worker = RolloutWorker(parse_config({}), None, MutePartner())
    (dialogue,) = asyncio.run(worker.play(worker.spec(ROWS[0], "0")))
    with DialogueLog(tmp_path / "logs" / "train.jsonl") as log:
        log.append(dialogue)

    def check(rows: list[GameRow]) -> None:
        own = [GameRow.of(MatchingEnv(), row.game_id, row.game_state) for row in rows]
        write_rows(own, tmp_path / "g.jsonl")
        data = {"train": tmp_path / "g.jsonl", "eval": None, "num_train": len(rows)}
        check_games(parse_config({"data": data, "train": {"games_per_step": 1}}), tmp_path / "logs")

    check([*ROWS[1:], replace(ROWS[0], game_id="renamed")])
    with pytest.raises(DataError, match=r"g\.jsonl has other games than the run began with"):
        check([replace(ROWS[1], game_id=ROWS[0].game_id)])


def test_in_self_play_a_seat_that_is_missing_is_played_again(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    whole = played(log, ROWS[:2], partner={"kind": "self"})
    assert len(whole) == 4
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))  # as a crash leaves it
    assert played(log, ROWS[:2], partner={"kind": "self"}) == whole
    assert sorted(dialogue.id for dialogue in read_log(log)) == sorted(whole)
    assert {dialogue.group.rpartition("/")[2] for dialogue in read_log(log)} == {"0", "1"}, "a baseline for each seat"


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
            play_held_out(RolloutWorker(config, None, player), TWELVE, log, step=None)
    finally:
        signal.signal(signal.SIGINT, before)
    kept = [dialogue.id for dialogue in read_log(log)]
    assert len(player.seeds) == len(kept) == 3
    play_held_out(RolloutWorker(config, None, MutePartner()), TWELVE, log, step=None)
    ids = [dialogue.id for dialogue in read_log(log)]
    assert ids[:3] == kept and len(ids) == len(set(ids)) == len(TWELVE)
