"""`slim-rl doctor` on machines well and ill: each fault is its own line with its fix, and none of them hides the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from slim_rl.backends.checks import Check, examine
from slim_rl.commands.doctor import command, print_table
from slim_rl.config import Config
from slim_rl.dialogue.dealing import ensure_games
from slim_rl.errors import ConfigError
from tests.commands.doctor_setup import config, doctor, policy

__all__ = ["config", "policy"]  # fixtures


def test_a_machine_that_is_well(tmp_path: Path, config: dict[str, Any]) -> None:
    checks = doctor(tmp_path, config)
    assert {name: check for name, check in checks.items() if check.status == "fail"} == {}
    with pytest.raises(typer.Exit) as ended:
        command(tmp_path / "config.yaml")
    assert ended.value.exit_code == 0
    assert "prompt has" in checks["tokenizer"].finding
    assert "shy answered" in checks["partner"].finding
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Qwen3-0.6B", "config.yaml"], "looking writes nothing"


def test_a_config_that_cannot_be_read_is_the_only_finding(tmp_path: Path) -> None:
    checks = doctor(tmp_path, {"partner": {"kindd": "shy"}})
    assert list(checks) == ["config"]
    assert "partner.kindd" in checks["config"].finding
    with pytest.raises(typer.Exit) as ended:
        command(tmp_path / "config.yaml")
    assert ended.value.exit_code == 1


def test_what_breaks_in_a_check_is_its_own_finding() -> None:
    def breaks(_: Config) -> Check:
        raise KeyError("scale1")

    def refuses(_: Config) -> Check:
        raise ConfigError("Too hot; cool it.")

    def works(_: Config) -> list[Check]:
        return [Check("c", "pass", "fine"), Check("d", "warn", "odd", "look")]

    checks = examine(Config(), {"a": breaks, "b": refuses, "c": works})
    assert [(check.name, check.status) for check in checks] == [
        ("a", "fail"),
        ("b", "fail"),
        ("c", "pass"),
        ("d", "warn"),
    ]
    assert checks[0].finding == "KeyError: 'scale1'" and checks[0].fix
    assert checks[1] == Check("b", "fail", "Too hot; cool it.")


def test_template_without_an_end_token_fails(tmp_path: Path, config: dict[str, Any], policy: Path) -> None:
    path = policy / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    template = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant: "
    settings["chat_template"] = template
    path.write_text(json.dumps(settings))
    (policy / "chat_template.jinja").write_text(template)
    check = doctor(tmp_path, config)["tokenizer"]
    assert check.status == "fail"
    assert "control token" in check.finding


def test_prompt_that_leaves_no_room_fails(tmp_path: Path, config: dict[str, Any]) -> None:
    check = doctor(tmp_path, config | {"limits": {"context_tokens": 600, "turn_tokens": 256}})["tokenizer"]
    assert check.status == "fail"
    assert check.fix == "Raise limits.context_tokens."


def test_missing_tokenizer_fails_and_the_rest_is_still_looked_at(tmp_path: Path, config: dict[str, Any]) -> None:
    checks = doctor(tmp_path, config | {"policy": {"model": str(tmp_path)}})
    assert checks["tokenizer"].status == "fail"
    assert checks["partner"].status == "pass"


def test_doctor_counts_held_out_games_seen_in_training(tmp_path: Path, config: dict[str, Any]) -> None:
    nine = {"environment": "examples.treasure.Treasure", "game": {}, "partner": {"kind": "honest"}}
    config = config | nine | {"data": config["data"] | {"num_train": 200}}
    ensure_games(Config.model_validate(config))
    check = doctor(tmp_path, config)["held-out games"]
    assert check.status == "warn" and check.finding.endswith("2 of them dealt as training games are")
    assert "learned by heart" in check.fix


def test_games_of_another_specification_fail(tmp_path: Path, config: dict[str, Any]) -> None:
    ensure_games(Config.model_validate(config))
    checks = doctor(tmp_path, config)
    assert (checks["train games"].finding.split()[0], checks["held-out games"].finding.split()[0]) == ("5", "2")
    assert checks["held-out games"].status == "pass" and "games" not in checks
    check = doctor(tmp_path, config | {"game": {"n": 4}})["games"]
    assert check.status == "fail" and "make it again" in check.finding


def test_torn_games_file_fails(tmp_path: Path, config: dict[str, Any]) -> None:
    (tmp_path / "games.jsonl").write_text('{"game_id": "1", "pro')
    checks = doctor(tmp_path, config)
    assert checks["games"].status == "fail"
    assert "line 1" in checks["games"].finding


def test_an_unknown_backend_is_said_as_the_run_says_it(tmp_path: Path, config: dict[str, Any]) -> None:
    check = doctor(tmp_path, config, backend="trll")["config"]
    assert check.status == "fail" and "'trl', 'slime' or 'verl'" in check.finding


def test_fewer_games_than_asked_for_are_warned_of(tmp_path: Path, config: dict[str, Any]) -> None:
    ensure_games(Config.model_validate(config))
    fewer = config | {"data": config["data"] | {"num_train": 9}, "train": {"games_per_step": 4}}
    check = doctor(tmp_path, fewer)["train games"]
    assert check.status == "warn" and "5 of the 9" in check.fix and "--overwrite" in check.fix
    assert doctor(tmp_path, fewer | {"train": {"games_per_step": 6}})["games"].status == "fail", "as the run refuses it"


def test_table_shows_findings_as_they_are_and_the_fixes(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(
        [
            Check("reply", "pass", "[message] hello"),
            Check("disk", "fail", "full", "Make room."),
            Check("x", "warn", "y"),
        ]
    )
    printed = capsys.readouterr().out
    assert "[message] hello" in printed
    assert "→ Make room." in printed
    assert "1 pass, 1 warn, 1 fail" in printed


def test_a_fix_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [Check(name, "fail", "not installed", "pip install it.") for name in ("torch", "trl")]
    print_table([*checks, Check("disk", "warn", "small", "Clean up.")])
    printed = capsys.readouterr().out
    assert printed.count("pip install it.") == 1 and printed.count("→ as above") == 1 and "→ Clean up." in printed
