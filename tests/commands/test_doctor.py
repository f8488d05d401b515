"""`slim-rl doctor` on machines well and ill: each fault is its own line with its fix, and none of them hides the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from slim_rl.backends.checks import Check, examine
from slim_rl.backends.slime.doctor import check_launch
from slim_rl.commands.doctor import command, print_table, run_doctor
from slim_rl.config import Config
from slim_rl.dialogue.dealing import ensure_games
from slim_rl.errors import ConfigError
from tests.fakes.cluster import Cluster, write_model
from tests.fakes.openai_server import OpenAIServer, Step
from tests.paths import ROOT


@pytest.fixture
def policy(tmp_path: Path, tokenizer: Any) -> Path:
    """A small checkpoint folder: a tokenizer with ChatML and a config.json."""
    folder = write_model(tmp_path, "Qwen3-0.6B", hidden_size=64, num_hidden_layers=2, vocab_size=400)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def config(tmp_path: Path, policy: Path) -> dict[str, Any]:
    return {
        "game": {"n": 3, "scales": False},
        "data": {
            "train": str(tmp_path / "games.jsonl"),
            "eval": str(tmp_path / "eval.jsonl"),
            "num_train": 5,
            "num_eval": 2,
        },
        "policy": {"model": str(policy)},
        "output_dir": str(tmp_path / "runs"),
    }


def doctor(tmp_path: Path, config: dict[str, Any], backend: str = "trl") -> dict[str, Check]:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"slim_rl": config}))
    return {check.name: check for check in run_doctor(path, backend)}


def test_a_machine_that_is_well(tmp_path: Path, config: dict[str, Any]) -> None:
    checks = doctor(tmp_path, config)
    assert {name: check for name, check in checks.items() if check.status == "fail"} == {}
    with pytest.raises(typer.Exit) as ended:
        command(tmp_path / "config.yaml")
    assert ended.value.exit_code == 0
    assert "prompt has" in checks["tokenizer"].found
    assert "shy answered" in checks["partner"].found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Qwen3-0.6B", "config.yaml"], "looking writes nothing"


def test_a_config_that_cannot_be_read_is_the_only_finding(tmp_path: Path) -> None:
    checks = doctor(tmp_path, {"partner": {"kindd": "shy"}})
    assert list(checks) == ["config"]
    assert "partner.kindd" in checks["config"].found
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
    assert checks[0].found == "KeyError: 'scale1'" and checks[0].fix
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
    assert "control token" in check.found


def test_prompt_that_leaves_no_room_fails(tmp_path: Path, config: dict[str, Any]) -> None:
    check = doctor(tmp_path, config | {"limits": {"context_tokens": 600, "turn_tokens": 256}})["tokenizer"]
    assert check.status == "fail"
    assert check.fix == "Raise limits.context_tokens."


def test_missing_tokenizer_fails_and_the_rest_is_still_looked_at(tmp_path: Path, config: dict[str, Any]) -> None:
    checks = doctor(tmp_path, config | {"policy": {"model": str(tmp_path)}})
    assert checks["tokenizer"].status == "fail"
    assert checks["partner"].status == "pass"


def test_games_of_another_specification_fail(tmp_path: Path, config: dict[str, Any]) -> None:
    ensure_games(Config.model_validate(config))
    checks = doctor(tmp_path, config)
    assert (checks["train games"].found.split()[0], checks["held-out games"].found.split()[0]) == ("5", "2")
    assert "games" not in checks
    check = doctor(tmp_path, config | {"game": {"n": 4}})["games"]
    assert check.status == "fail" and "make it again" in check.found


def test_torn_games_file_fails(tmp_path: Path, config: dict[str, Any]) -> None:
    (tmp_path / "games.jsonl").write_text('{"game_id": "1", "pro')
    checks = doctor(tmp_path, config)
    assert checks["games"].status == "fail"
    assert "line 1" in checks["games"].found


# -------------------------------------------------------------------------------------------------------- the partner
def openai(server: OpenAIServer, **settings: Any) -> dict[str, Any]:
    return {"kind": "openai", "openai": {"base_url": server.url, "api_key_env": "DOCTORS_KEY", **settings}}


async def test_endpoint_is_called_once_and_its_cost_told(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCTORS_KEY", "sk-test")
    async with OpenAIServer(key="sk-test") as server:
        checks = await asyncio.to_thread(doctor, tmp_path, config | {"partner": openai(server)})
        assert len(server.requests) == 1
    assert checks["partner"].status == "pass", checks["partner"]
    assert "$0.0" in checks["partner"].found
    assert checks["partner's cost"].status == "warn"
    assert "budget_usd" in checks["partner's cost"].fix


async def test_refused_key_fails_without_being_shown(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCTORS_KEY", "sk-wrong")
    async with OpenAIServer(key="sk-test") as server:
        checks = await asyncio.to_thread(doctor, tmp_path, config | {"partner": openai(server, budget_usd=1000)})
    assert checks["partner"].status == "fail"
    assert "sk-wrong" not in str(checks)
    assert checks["partner's cost"].status == "pass"


async def test_endpoint_that_is_down_does_not_keep_the_doctor_waiting(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCTORS_KEY", "sk-test")
    async with OpenAIServer(key="sk-test", script=[Step("status", status=500)] * 50) as server:
        checks = await asyncio.to_thread(doctor, tmp_path, config | {"partner": openai(server)})
        assert len(server.requests) <= 5
    assert checks["partner"].status == "fail"


async def looked_up(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch, server: OpenAIServer, **settings: Any
) -> Check | None:
    """The doctor's line on the partner's model."""
    monkeypatch.setenv("DOCTORS_KEY", "sk-test")
    checks = await asyncio.to_thread(doctor, tmp_path, config | {"partner": openai(server, **settings)})
    return checks.get("partner's model")


async def test_a_model_with_a_known_end_names_its_successors(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with OpenAIServer(key="sk-test") as server:
        check = await looked_up(tmp_path, config, monkeypatch, server)
    assert check is not None and check.status == "warn"
    assert "is among the 1 models" in check.found
    assert "shutdown of gpt-4.1 between October 2026 and January 2027 (not verified)" in check.found
    assert "gpt-5-mini (--set " in check.fix and "Qwen/Qwen3-32B (--set " in check.fix


async def test_a_model_that_the_endpoint_has_no_more_is_told(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with OpenAIServer(key="sk-test", model="gpt-6") as server:
        gone = await looked_up(tmp_path, config, monkeypatch, server, model="gpt-4o")
        there = await looked_up(tmp_path, config, monkeypatch, server, model="gpt-6")
    assert gone is not None and gone.status == "warn" and "gpt-4o is not among the 1 models of http" in gone.found
    assert "Qwen/Qwen3-32B" in gone.fix
    assert there is not None and (there.status, there.fix) == ("pass", "")


async def test_an_endpoint_without_a_list_of_models_is_no_failure(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with OpenAIServer(key="sk-test", model="gpt-6", models=False) as server:
        check = await looked_up(tmp_path, config, monkeypatch, server, model="gpt-6")
    assert check == Check("partner's model", "pass", f"{server.url} has no list of its models")
    assert "partner's model" not in await asyncio.to_thread(doctor, tmp_path, config), "a scripted partner has none"


# -------------------------------------------------------------------------------------------------------- the machine
def on_path(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    monkeypatch.setenv("PATH", cluster.environment["PATH"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_gpus_are_counted_and_those_in_use_told(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(Cluster.build(tmp_path / "node"), monkeypatch)
    assert doctor(tmp_path, config)["GPUs"] == Check("GPUs", "pass", "4 × NVIDIA H100 80GB HBM3, 80 GiB")
    assert doctor(tmp_path, config | {"verl": {"gpus": 8}}, "verl")["GPUs"].fix == "Set verl.gpus=4."
    monkeypatch.setenv("NUM_GPUS", "8")
    wanted = doctor(tmp_path, config)["GPUs"]
    assert (wanted.status, wanted.fix) == ("fail", "Set NUM_GPUS=4.")
    monkeypatch.delenv("NUM_GPUS")
    monkeypatch.setenv("USED", "60000")
    busy = doctor(tmp_path, config)["GPUs"]
    assert busy.status == "warn" and "4 in use" in busy.found


def test_cluster_backends_fail_without_a_gpu(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    check = doctor(tmp_path, config, backend="slime")["GPUs"]
    assert check.status == "fail" and "make run" in check.fix
    tried = doctor(tmp_path, config, backend="slime")["without a GPU"]
    assert tried.status == "pass" and "`make run-slime` trains the tiny model" in tried.found
    assert doctor(tmp_path, config)["GPUs"].status == "pass", "a tiny model trains on a CPU"


def test_disk_too_small_for_the_checkpoints(tmp_path: Path, config: dict[str, Any]) -> None:
    huge = write_model(tmp_path / "huge", "Qwen3-32B", num_hidden_layers=10**6)
    check = doctor(tmp_path, config | {"policy": {"model": str(huge)}})["disk"]
    assert check.status == "fail" and "SAVE_DIR" in check.fix


def test_a_run_whose_checkpoints_outgrow_the_disk_is_warned_of(tmp_path: Path, config: dict[str, Any]) -> None:
    train = {"steps": 10**12, "save_every": 1}
    check = doctor(tmp_path, config | {"train": train}, backend="slime")["disk"]
    assert check.status == "warn" and "save_every" in check.fix


def test_a_tracker_without_its_key_fails(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    tracked = config | {"train": {"report_to": ["wandb"]}}
    assert "W&B" not in doctor(tmp_path, config)
    check = doctor(tmp_path, tracked)["W&B"]
    assert check.status == "fail" and "WANDB_API_KEY" in check.fix
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password abc")
    (tmp_path / ".netrc").chmod(0o600)
    assert doctor(tmp_path, tracked)["W&B"].status == "pass"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert doctor(tmp_path, tracked)["W&B"].status == "pass"


def test_an_unknown_backend_is_said_as_the_run_says_it(tmp_path: Path, config: dict[str, Any]) -> None:
    check = doctor(tmp_path, config, backend="trll")["config"]
    assert check.status == "fail" and "'trl', 'slime' or 'verl'" in check.found


def test_fewer_games_than_asked_for_are_warned_of(tmp_path: Path, config: dict[str, Any]) -> None:
    ensure_games(Config.model_validate(config))
    fewer = config | {"data": config["data"] | {"num_train": 9}, "train": {"games_per_step": 4}}
    check = doctor(tmp_path, fewer)["train games"]
    assert check.status == "warn" and "5 of the 9" in check.fix and "--overwrite" in check.fix
    assert doctor(tmp_path, fewer | {"train": {"games_per_step": 6}})["games"].status == "fail", "as the run refuses it"


def test_a_hub_that_does_not_answer_is_given_up_in_seconds(tmp_path: Path, config: dict[str, Any]) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections and says nothing
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config | {"policy": {"model": "nobody/nothing"}}))
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run(
        [sys.executable, "-m", "slim_rl.cli", "doctor", str(path)],
        env=environment | {"HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}", "HF_HOME": str(tmp_path)},
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    silent.setblocking(False)
    tried = 0
    with silent, contextlib.suppress(BlockingIOError):
        while True:
            silent.accept()[0].close()
            tried += 1
    assert tried <= 2, "each waits for seconds"
    assert done.returncode == 1 and "nobody/nothing has no tokenizer" in " ".join(done.stdout.split()), done.stdout


# ---------------------------------------------------------------------------------------------------------------- slime
def test_model_is_held_against_slimes_scripts_and_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster.build(tmp_path / "node")
    on_path(cluster, monkeypatch, SLIME_DIR=str(cluster.slime))

    def look(name: str, **changes: Any) -> Check:
        model = write_model(tmp_path / str(changes), name, **changes)
        config = Config.model_validate({"policy": {"model": str(model)}, "train": {"backend": "slime"}})
        return examine(config, {"model": check_launch})[0]

    assert look("Qwen3-4B").status == "pass"
    assert look("Qwen3-4B").found.startswith("Qwen3-4B is slime's qwen3-4b, 4.0B")
    assert look("Qwen3-32B").status == "pass", "with Adam's states on the host"
    unknown = look("Qwen3-4B", hidden_size=2561)
    assert unknown.status == "fail" and "no model script" in unknown.found


def test_slime_that_is_not_there_is_said_once(tmp_path: Path, config: dict[str, Any]) -> None:
    if "slime" in __import__("sys").modules or os.environ.get("SLIME_DIR"):
        pytest.skip("slime is here")
    checks = doctor(tmp_path, config, backend="slime")
    assert checks["slime"].status == "fail"
    assert checks["hooks"] == Check("hooks", "fail", "cannot be loaded without slime", "Fix the checks above first.")


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
