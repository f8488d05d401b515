"""verl's trainer for a user's game, as far as it goes without GPUs: its data and its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")
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


@pytest.mark.verl
def test_trainer_of_a_game_is_verls_current_one(tmp_path: Path, model: Path) -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.utils.dataset.rl_dataset import RLHFDataset

    trainer = make_trainer(parse_config(settings(tmp_path, model)))
    assert isinstance(trainer, PPOTrainer)
    assert trainer.use_reference_policy and not trainer.use_critic, "a KL is asked for, and GRPO needs no critic"
    trainer._init_tokenizer()
    data = RLHFDataset(trainer.config.data.train_files, trainer.tokenizer, trainer.config.data)
    assert len(data) == 6
    assert "Find the number from 1 to 8" in data[0]["raw_prompt"][0]["content"]


def test_older_trainer_of_verl_is_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.use_v1=false names verl's older trainer"):
        make_trainer(parse_config({"output_dir": str(tmp_path)}), ["trainer.use_v1=false"])
    assert not any(tmp_path.iterdir()), "nothing is written of what is refused"
