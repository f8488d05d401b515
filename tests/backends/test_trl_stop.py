"""A policy that diverged, or a partner that takes no more calls, ends a run in a sentence: nothing broken is saved, and the run goes on."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch

from slim_rl.backends.trl import rollouts
from slim_rl.backends.trl import run as local
from slim_rl.backends.trl.checkpoints import whole_checkpoints
from slim_rl.config import Config
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.errors import ConfigError, Diverged, RunStopped
from slim_rl.partners.endpoint import Endpoint
from slim_rl.partners.limits import Breaker
from slim_rl.policies.transformers import load_model, load_policy
from tests.backends.trl_setup import checkpoints, make_config, make_rollouts, paid_config, same, trained, weights
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import spent_usd

PRICES = {"gpt-4.1": {"output": 1e6}}
DOLLAR = Step(usage={"prompt_tokens": 1000, "completion_tokens": 1})  # an answer costs one, whatever it says


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endpoint, "first_wait", 0.01)
    for name, value in (("failures", 2), ("seconds", 0.0), ("probe_seconds", 0.02)):
        monkeypatch.setattr(Breaker, name, value)


def partner_calls(config: Config) -> list[int]:
    """The partner's turns in each step of the log."""
    steps = Counter[int | None]()
    for dialogue in trained(config):
        steps[dialogue.step] += sum(turn.role == "partner" for turn in dialogue.turns)
    return [steps[step] for step in range(config.train.steps)]


@pytest.fixture(scope="module")
def paid(folder: Path) -> tuple[list[int], dict[str, torch.Tensor]]:
    """A run of three steps that no stop met: its partner's calls by step, and its weights."""
    with OpenAIServer() as server:
        config = paid_config(folder, "paid", server, "train.steps=3", prices=PRICES)
        local.train(config)
    calls = partner_calls(config)
    assert min(calls) > 1
    return calls, weights(config.run_dir)


@pytest.mark.parametrize("kind", ["budget", "outage", "evaluation"])
def test_stop_saves_finished_steps_and_the_run_resumes(folder: Path, kind: str, paid: Any) -> None:
    """In the third step, or in the evaluation before it."""
    calls, expected = paid
    two, down = calls[0] + calls[1], kind == "outage"
    evaluated = ["train.eval_games=2", "train.eval_every=2", "train.eval_before=false"] * (kind == "evaluation")
    with OpenAIServer() as server:
        server.meets = lambda body: Step("cut") if down and len(server.requests) > two + 1 else DOLLAR

        def config_of(**openai: Any) -> Config:
            usual = {"prices": PRICES, "outage_wait_minutes": 0.005, "budget_usd": 1e6, **openai}
            return paid_config(folder, kind, server, "train.steps=3", *evaluated, **usual)

        config = config_of(budget_usd=1e6 if down else two + (1.5 if kind == "budget" else 0.5))
        why = "has not answered" if down else r"Raise partner\.openai\.budget_usd"
        with pytest.raises(RunStopped, match=rf"{why}.*The 2 steps before it are saved"):
            local.train(config)
        assert checkpoints(config) == ["checkpoint-2"]
        spent, sent = spent_usd(config.run_dir), len(server.requests)
        assert spent >= two
        if kind == "budget":
            with pytest.raises(RunStopped):
                local.train(config)
            assert len(server.requests) == sent, "the budget is the run's, not the start's"
            assert spent_usd(config.run_dir) == spent
            with pytest.raises(ConfigError, match="temperature"):
                local.train(config_of(temperature=0.5))
        down = False
        result = local.train(config_of(request_seconds=59.0))  # as in another process: no memory of the outage
    assert partner_calls(config) == calls and same(weights(config.run_dir), expected)
    if not evaluated:
        assert spent_usd(config.run_dir) == spent + calls[2]
    else:
        played = [d.id for d in read_log(result.log_dir / "eval-000002.jsonl") if not d.failed]  # type: ignore[union-attr]
        assert len(set(played)) == len(played) == 2


def test_stop_applies_to_processes_without_failures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_two(mine: list[Any]) -> list[Any]:
        failed = Dialogue("d", "g", 0, 0, {}, {}, {}, stop_reason=StopReason.PARTNER_FAILED, failure="gone")
        return [*mine, *[failed] * 24]

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
    config = make_config(folder, "later", "train.steps=3", "train.save_every=2", "train.eval_games=0")
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
    saved = weights(config.run_dir / "checkpoints" / "checkpoint-2")
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
    model, tokenizer = load_model(make_config(folder, "broken").policy)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(float("nan"))
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    broken = make_config(folder, "broken", f"policy.model={tmp_path}/model", f"policy.top_p={top_p}")
    policy, chat = load_policy(broken.policy)
    worker, rows = local.RolloutWorker(broken, chat, policy), local.load_rows(broken, "eval")
    with pytest.raises(Diverged, match="are not finite numbers"):
        local.play_held_out(worker, rows, tmp_path / "eval.jsonl", step=0)
