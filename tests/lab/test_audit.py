"""The audit of a log: what each partner did wrongly in the games that check it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slim_rl.commands import load
from slim_rl.config import load_config
from slim_rl.dialogue.dealing import deal
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import environment_class
from slim_rl.errors import DataError
from slim_rl.lab.audit import Audit, audits
from slim_rl.measured import measured
from tests.games.matching.test_audit import ASK, dialogue


def test_a_log_is_audited_by_partner(tmp_path: Path) -> None:
    with DialogueLog(tmp_path / "log.jsonl") as log:
        for number, (words, partner) in enumerate([("60.", "a"), ("61.", "b"), ("62.", "b")]):
            one = dialogue(ASK, f"[message] {words}", partner={"model": partner})
            one.id = f"d{number}"
            log.append(one)
        log.append(Dialogue("e", "g", 0, 0, {"secret": 3}, {}, {"kind": "shy"}))
        log.append(Dialogue("f", "g", 0, 0, {"secret": 3}, {}, {"kind": "shy"}, environment="others.Game"))
    found, skipped = audits(read_log(tmp_path))
    assert [(audit.name, audit.dialogues) for audit in found] == [("openai a", 1), ("openai b", 2), ("all partners", 3)]
    assert [audit.faults["stated a false value"] for audit in found] == [[0, 1], [2, 2], [2, 3]]
    assert skipped == 2
    text = "\n".join(found[-1].lines())
    assert "66.67%" in text and "2 of 3" in text and "all partners, 3 dialogues" in text


@pytest.mark.parametrize(("faults", "cases", "low", "high"), [(1, 10, "1.79%", "40.42%"), (0, 20, "0.00%", "16.11%")])
def test_wilson_intervals(faults: int, cases: int, low: str, high: str) -> None:
    (_, line) = Audit("shy", 1, {"told a value that was not asked for": [faults, cases]}).lines()
    assert low in line and high in line and len(line) <= 80


def test_a_check_without_a_case_says_so() -> None:
    (_, line) = Audit("shy", 1, {"malformed reply": [0, 0]}).lines()
    assert line.endswith(" no case")


def test_every_game_that_checks_its_partner_is_audited() -> None:
    config = load_config("guess_who_local", ["partner.kind=mute", "data.eval=null"])
    players = measured(environment_class(config.environment)).scripted_players(config.game, (2,))
    worker = RolloutWorker(config, None, next(each.player for each in players if each.questions == 2))
    episodes = [worker.spec(row, "audit") for row in deal(config, "eval", 5)]
    played = asyncio.run(worker.play_all(episodes))
    (audit,), skipped = audits(dialogue for (dialogue,) in played)
    assert audit.name == "mute" and audit.dialogues == 5 and skipped == 0
    refused, plain = audit.faults["left a plain question open"]
    assert refused == plain > 0


def test_a_log_that_is_named_twice_is_audited_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a", "b"):
        with DialogueLog(tmp_path / folder / "log.jsonl") as log:
            log.append(dialogue(ASK, "[message] It is 60."))
    said = []
    for named in ([tmp_path], [tmp_path, tmp_path / "a", tmp_path / "b" / "log.jsonl"]):
        load("lab audit")([str(path) for path in named], standalone_mode=False)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and "2 dialogues" in said[0]


def test_a_log_of_nothing_that_can_be_audited_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.jsonl").touch()
    with pytest.raises(DataError, match="No dialogue is in"):
        load("lab audit")([str(tmp_path)], standalone_mode=False)
    with DialogueLog(tmp_path / "log.jsonl") as log:
        log.append(Dialogue("e", "g", 0, 0, {"secret": 3}, {}, {"kind": "shy"}))
    load("lab audit")([str(tmp_path)], standalone_mode=False)
    assert capsys.readouterr().out == "Left out: 1 dialogue of games without a partner audit.\n"
