"""A policy that has diverged ends the run in a sentence, and none of it is saved; nor does a reward that is no number reach TRL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
from safetensors.torch import load_file

from slim_rl.backends.trl import run as local
from slim_rl.backends.trl.checkpoints import whole_checkpoints
from slim_rl.dialogue.log import read_log
from slim_rl.errors import Diverged, RunStopped
from slim_rl.games.matching import MatchingEnv
from slim_rl.policies.transformers import load_model, load_policy
from tests.backends.test_trl import make_config, make_rollouts


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
