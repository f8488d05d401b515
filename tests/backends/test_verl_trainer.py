"""RayPPOTrainer for your own game, as far as it goes without GPUs: its data, roles, resource pool and reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")
from slim_rl.backends.checks import Check, check_packages, examine
from slim_rl.backends.gpus import find_gpus
from slim_rl.backends.verl.doctor import EXAMINATIONS
from slim_rl.backends.verl.trainer import make_trainer
from slim_rl.config import parse_config
from slim_rl.errors import ConfigError
from tests.backends.verl_setup import checkpoint

OWN_GAME = {
    "environment": "examples.secret_number.SecretNumber",
    "train": {"games_per_step": 2, "group_size": 4, "kl_coef": 0.01},
    "verl": {"gpus": 2, "prompt_tokens": 256},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    return checkpoint(tmp_path_factory.mktemp("model"), tokenizer)


def settings(folder: Path, model: Path) -> dict[str, Any]:
    return OWN_GAME | {
        "output_dir": str(folder),
        "data": {"train": str(folder / "games.jsonl"), "num_train": 6},
        "policy": {"model": str(model)},
    }


def test_the_trainer_is_verls_own_around_ones_game(tmp_path: Path, model: Path) -> None:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.trainer.ppo.utils import Role

    trainer = make_trainer(parse_config(settings(tmp_path, model)))
    assert isinstance(trainer, RayPPOTrainer)
    assert len(trainer.train_dataset) == 6
    batch = next(iter(trainer.train_dataloader))
    assert len(batch["raw_prompt"]) == 2
    assert "Find the number from 1 to 8" in batch["raw_prompt"][0][0]["content"]
    assert Role.ActorRolloutRef in trainer.role_worker_mapping  # a KL is asked for: the reference sits with the actor
    assert trainer.resource_pool_manager.resource_pool_spec == {"global_pool": [2]}
    assert trainer.resource_pool_manager.mapping[Role.ActorRolloutRef] == "global_pool"
    assert trainer.config.algorithm.adv_estimator == "grpo_played"
    assert not trainer.use_critic


def test_self_play_is_sent_to_the_newer_trainer(tmp_path: Path, model: Path) -> None:
    with pytest.raises(ConfigError, match=r"partner\.kind self asks for"):
        make_trainer(parse_config({"output_dir": str(tmp_path), "partner": {"kind": "self"}}))
    assert not any(tmp_path.iterdir()), "nothing is written of what is refused"


def test_the_doctor_says_what_is_there_and_what_is_not(tmp_path: Path, model: Path) -> None:
    def look(**changes: Any) -> dict[str, Check]:
        config = parse_config(settings(tmp_path, model) | changes, ["train.backend=verl"])
        return {check.name: check for check in examine(config, {"packages": check_packages} | EXAMINATIONS)}

    found = look()
    assert found["verl"].status == "pass"
    assert found["verl's config"].status == "pass"
    assert found["verl's parts"].found == "loop slim_rl_dialogue, reward manager GameRewardManager"
    there = len(find_gpus())
    assert (found["GPUs"].status == "fail") == (there < 2)
    assert there or "0 of the 2" in found["GPUs"].found

    refused = look(verl={"overrides": {"algorithm.gama": 1}})["verl's config"]
    assert (refused.status, "gama" in refused.found) == ("fail", True)
