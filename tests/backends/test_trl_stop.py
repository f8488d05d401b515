"""A policy that diverged, or a partner that takes no more calls, ends a run in a sentence: nothing broken is saved, and the run goes on."""

from __future__ import annotations

import pytest

pytest.importorskip("trl")

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from slim_rl.backends.trl import rollouts
from slim_rl.backends.trl import run as local
from slim_rl.backends.trl.checkpoints import whole_checkpoints
from slim_rl.config import Config
from slim_rl.dialogue.failures import Failures
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.errors import ConfigError, Diverged, RunStopped
from slim_rl.games.matching import MatchingEnv
from slim_rl.partners.endpoint import Endpoint
from slim_rl.partners.limits import Breaker
from slim_rl.policies.transformers import load_model, load_policy
from tests.backends.test_trl import make_config, make_rollouts
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


@pytest.mark.parametrize(("rate", "steps"), [("1e38", 1), ("1e30", 3)])
def test_a_rate_that_breaks_the_weights_saves_nothing(folder: Path, rate: str, steps: int) -> None:
    more = (f"train.learning_rate={rate}", f"train.steps={steps}", "train.save_every=1", "train.eval_games=0")
    config = make_config(folder, f"diverged-{rate}-{steps}", *more)
    with pytest.raises(Diverged, match=r"stops after 1 steps\. .* Lower train\.learning_rate \(1e\+3\d\)") as caught:
        local.train(config)
    assert "\n" not in str(caught.value) and "last checkpoint" not in str(caught.value)
    assert not whole_checkpoints(config.run_dir / "checkpoints")
    assert not (config.run_dir / "model").exists()


def test_the_last_checkpoint_before_it_is_named_and_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(folder, "later", "train.steps=4", "train.save_every=2", "train.eval_games=0")
    made = local.make_trainer

    def with_a_bad_third_step(*arguments: Any) -> Any:
        trainer = made(*arguments)
        compute = trainer.compute_loss
        bad = lambda loss: loss * float("nan") if trainer.state.global_step == 2 else loss  # noqa: E731
        trainer.compute_loss = lambda *some, **others: bad(compute(*some, **others))
        return trainer

    monkeypatch.setattr(local, "make_trainer", with_a_bad_third_step)
    with pytest.raises(Diverged, match=r"gradient of step 2 is not a finite number.*checkpoint-2"):
        local.train(config)
    assert list(whole_checkpoints(config.run_dir / "checkpoints")) == [2]
    saved = load_file(config.run_dir / "checkpoints" / "checkpoint-2" / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in saved.values())


def test_a_weight_that_no_token_meets_is_looked_at_too(folder: Path) -> None:
    trainer, _ = make_rollouts(make_config(folder, "unmet"), folder)
    trainer.check_finite()
    with torch.no_grad():
        trainer.model.get_input_embeddings().weight[-1, 0] = float("inf")
    with pytest.raises(Diverged, match="after step 0"):
        trainer.check_finite()


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_a_broken_model_is_not_sampled_from(folder: Path, tmp_path: Path, top_p: float) -> None:
    config = make_config(folder, "broken")
    model, tokenizer = load_model(config.policy)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(float("nan"))
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    broken = make_config(folder, "broken", f"policy.model={tmp_path}/model", f"policy.top_p={top_p}")
    policy, chat = load_policy(broken.policy)
    worker = local.RolloutWorker(broken, chat, policy)
    rows = local.load_rows(broken, "eval")
    with pytest.raises(Diverged, match="are not finite numbers"):
        local.play_held_out(worker, rows, tmp_path / "eval.jsonl", step=0)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_nan_reward_fails_its_dialogue(folder: Path, monkeypatch: pytest.MonkeyPatch, reward: float) -> None:
    monkeypatch.setattr(MatchingEnv, "get_normalized_reward", lambda self: reward)
    config = make_config(folder, f"reward-{reward}", "train.eval_games=0")
    with pytest.raises(RunStopped, match=rf"MatchingEnv\.get_normalized_reward returned {reward}, outside"):
        local.train(config)
    logged = list(read_log(config.run_dir / "logs" / "train.jsonl"))
    assert logged and all(dialogue.failed and dialogue.reward is None for dialogue in logged)
