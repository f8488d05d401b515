"""`slim-rl doctor` calls the partner's endpoint once, and says what it costs and how long its model will be there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from slim_rl.backends.checks import Check
from tests.commands.doctor_setup import config, doctor, policy
from tests.fakes.openai_server import OpenAIServer, Step

__all__ = ["config", "policy"]  # fixtures


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
    assert "$0.0" in checks["partner"].finding
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
    assert "is among the 1 models" in check.finding
    assert "shutdown of gpt-4.1 between October 2026 and January 2027 (not verified)" in check.finding
    assert "gpt-5-mini (--set " in check.fix and "Qwen/Qwen3-32B (--set " in check.fix


async def test_a_model_that_the_endpoint_has_no_more_is_told(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with OpenAIServer(key="sk-test", model="gpt-6") as server:
        gone = await looked_up(tmp_path, config, monkeypatch, server, model="gpt-4o")
        there = await looked_up(tmp_path, config, monkeypatch, server, model="gpt-6")
    assert gone is not None and gone.status == "warn" and "gpt-4o is not among the 1 models of http" in gone.finding
    assert "Qwen/Qwen3-32B" in gone.fix
    assert there is not None and (there.status, there.fix) == ("pass", "")


async def test_an_endpoint_without_a_list_of_models_is_no_failure(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with OpenAIServer(key="sk-test", model="gpt-6", models=False) as server:
        check = await looked_up(tmp_path, config, monkeypatch, server, model="gpt-6")
    assert check == Check("partner's model", "pass", f"{server.url} has no list of its models")
    assert "partner's model" not in await asyncio.to_thread(doctor, tmp_path, config), "a scripted partner has none"


UNFIT: dict[str, tuple[Step, str, str]] = {
    "vague": (Step(text="[message] Hard to say."), "partner", "does not answer '[message] What is "),
    "of another game": (Step(text="[move] e4"), "partner", "malformed replies in a row"),
    "a prompt that is cut": (
        Step(usage={"prompt_tokens": 90, "completion_tokens": 9}),
        "partner's endpoint",
        "cuts prompts",
    ),
    "all thought": (Step(text="", finish_reason="length"), "partner", "all thought"),
    "slow": (Step(seconds=1.0), "partner's pace", "128 at once take"),
}


@pytest.mark.parametrize(("step", "name", "found"), UNFIT.values(), ids=UNFIT)
async def test_doctor_partner_unfit_for_the_game_does_not_pass(
    tmp_path: Path, config: dict[str, Any], step: Step, name: str, found: str
) -> None:
    async with OpenAIServer(meets=lambda body: step) as server:
        checks = await asyncio.to_thread(doctor, tmp_path, config | {"partner": openai(server)})
    check = checks[name]
    assert check.status == ("fail" if name == "partner" else "warn") and found in check.finding
    assert check.fix or "in a row" in check.finding
    if name == "partner's pace":
        assert "Set partner.openai.concurrency=" in check.fix and checks["partner"].status == "pass"
        raised = re.search(r"request_seconds and turn_seconds to at least (\d+)\.", check.fix)
        assert raised and int(raised[1]) >= 256  # twice 128 replies of a second each; more on a busy machine


async def test_doctor_waits_for_request_seconds_of_the_config(tmp_path: Path, config: dict[str, Any]) -> None:
    async with OpenAIServer(meets=lambda body: Step(seconds=2.0)) as server:
        checks = await asyncio.to_thread(doctor, tmp_path, config | {"partner": openai(server, request_seconds=0.1)})
    assert checks["partner"].status == "fail" and "No reply" in checks["partner"].finding


@pytest.mark.parametrize(
    ("kind", "status"), [("shy", "pass"), ("mute", "pass"), ("examples.treasure.HonestPartner", "fail")]
)
def test_doctor_partner_in_code_must_speak_the_game(
    tmp_path: Path, config: dict[str, Any], kind: str, status: str
) -> None:
    check = doctor(tmp_path, config | {"partner": {"kind": kind}})["partner"]
    assert check.status == status, check
