"""A run whose partner takes no more calls: what was paid for is saved, and the same command goes on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
from safetensors.torch import load_file

from slim_rl.backends.trl import rollouts
from slim_rl.backends.trl import run as local
from slim_rl.config import Config
from slim_rl.dialogue.failures import Failures
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.errors import ConfigError, RunStopped
from slim_rl.partners.endpoint import Endpoint
from slim_rl.partners.limits import Breaker
from tests.backends.test_trl import make_config
from tests.fakes.openai_server import OpenAIServer, Step, serving
from tests.partners.openai_setup import spent_usd


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endpoint, "first_wait", 0.01)
    for name, value in (("failures", 2), ("seconds", 0.0), ("probe_seconds", 0.02)):
        monkeypatch.setattr(Breaker, name, value)


def config_of(folder: Path, name: str, server: OpenAIServer, *others: str, **openai: Any) -> Config:
    partner = {"base_url": server.url, "concurrency": 1, **openai}
    changes = [f"partner.openai.{key}={json.dumps(value)}" for key, value in partner.items()]
    # a checkpoint every 50 steps: none would be there when the run stops
    return make_config(
        folder,
        name,
        "partner.kind=openai",
        "train.steps=4",
        "train.save_every=50",
        "train.eval_games=0",
        *changes,
        *others,
    )


def partner_calls(config: Config) -> list[int]:
    """The partner's turns in each step of the log."""
    steps = [0] * config.train.steps
    for dialogue in read_log(config.run_dir / "logs" / "train.jsonl"):
        steps[dialogue.step or 0] += sum(turn.role == "partner" for turn in dialogue.turns)
    return steps


def checkpoints(config: Config) -> list[str]:
    return [path.name for path in (config.run_dir / "checkpoints").glob("checkpoint-*")]


@pytest.mark.parametrize("kind", ["budget", "outage"])
def test_stop_saves_finished_steps_and_the_run_resumes(folder: Path, kind: str) -> None:
    with serving() as server:
        whole = config_of(folder, f"whole-{kind}", server, prices={"gpt-4.1": {"output": 1e6}})
        local.train(whole)
        calls = partner_calls(whole)
        assert min(calls) > 1
    with serving() as server:

        def answer(body: dict[str, Any]) -> Step | None:  # 1 US dollar an answer, whatever it says
            if kind == "outage" and len(server.requests) > calls[0] + calls[1] + 1 and not repaired:
                return Step("cut")
            return Step(usage={"prompt_tokens": 1000, "completion_tokens": 1})

        repaired: list[bool] = []
        server.meets = answer
        prices = {"gpt-4.1": {"output": 1e6}}
        budget = calls[0] + calls[1] + 1.5 if kind == "budget" else 1e6
        settings: dict[str, Any] = {"prices": prices, "outage_wait_minutes": 0.005}
        config = config_of(folder, kind, server, budget_usd=budget, **settings)
        with pytest.raises(RunStopped, match=r"Training stops: .*The 2 steps before it are saved") as caught:
            local.train(config)
        assert ("Raise partner.openai.budget_usd" if kind == "budget" else "has not answered") in str(caught.value)
        assert checkpoints(config) == ["checkpoint-2"]
        spent = spent_usd(config.run_dir)
        assert spent >= calls[0] + calls[1]

        if kind == "budget":
            sent = len(server.requests)
            with pytest.raises(RunStopped):
                local.train(config)
            assert len(server.requests) == sent, "the budget is the run's, not the start's"
            assert spent_usd(config.run_dir) == spent
            with pytest.raises(ConfigError, match="temperature"):
                local.train(config_of(folder, kind, server, temperature=0.5, **settings))
        repaired.append(True)
        # Another process: the partner's own memory of the outage is gone.
        local.train(config_of(folder, kind, server, budget_usd=1e6, **settings, request_seconds=59.0))
    assert partner_calls(config) == calls
    assert spent_usd(config.run_dir) == spent + calls[2] + calls[3]
    mine, theirs = (load_file(each.run_dir / "model" / "model.safetensors") for each in (config, whole))
    assert all(mine[name].equal(theirs[name]) for name in theirs)


def test_too_many_failures_save_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Breaker, "failures", 10_000)
    with serving() as server:
        config = config_of(folder, "failing", server, "train.stop_failures=0.2", max_retries=0)
        server.meets = lambda body: Step("junk") if len(server.requests) > 14 else None
        with pytest.raises(RunStopped, match="dialogues failed") as caught:
            local.train(config)
    steps = int(str(caught.value).partition(" steps before it are saved")[0].rpartition(" ")[2])
    assert checkpoints(config) == [f"checkpoint-{steps}"] and steps > 0


def test_stop_applies_to_processes_without_failures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_two(mine: list[Any]) -> list[Any]:
        failed = Dialogue("d", "g", 0, 0, {}, {}, {}, stop_reason=StopReason.PARTNER_FAILED, failure="gone")
        return [*mine, Failures([failed] * 24)] if isinstance(mine[0], Failures) else mine

    monkeypatch.setattr(rollouts, "gather_object", of_two)
    with pytest.raises(RunStopped, match=r"24 of 32 dialogues failed \(75%\): 24 × partner_failed: gone"):
        local.train(make_config(folder, "of-two", "train.eval_games=0", "train.stop_failures=0.7"))
