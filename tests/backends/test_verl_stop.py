"""verl's own training loop, stopped: no step that the stop met is trained on, and those before it are saved."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")
import torch
import transfer_queue
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
from verl.trainer.ppo.utils import create_rl_sampler
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.dataset.rl_dataset import collate_fn

from slim_rl.backends.verl import plugin
from slim_rl.backends.verl.settings import STOP_MARK, settings
from slim_rl.config import parse_config
from slim_rl.errors import RunStopped

GAMES = 6


class Loop(PPOTrainer):  # type: ignore[misc]
    """verl's step (`_step_once`), games and checkpoints, with stand-ins for what needs GPUs. The mark appears while step `stop` is played."""

    def __init__(self, folder: Path, stop: int, all_failed: bool = False) -> None:
        trainer = {"default_local_dir": f"{folder}/checkpoints", "default_hdfs_dir": None, "critic_warmup": 0}
        own = {"slim_rl": {"config": f"{folder}/config.yaml"}, "data": {"shuffle": True, "seed": 1}, "trainer": trainer}
        model = {"actor_rollout_ref": {"rollout": {"temperature": 1.0}, "actor": {}}}
        self.config, self.trainer_mode = OmegaConf.create(own | model), "sync"
        games = [{"raw_prompt": [], "game": torch.tensor(game)} for game in range(GAMES)]
        sampler = create_rl_sampler(self.config.data, games)
        self.train_dataloader = StatefulDataLoader(games, batch_size=1, sampler=sampler, collate_fn=collate_fn)
        self.train_dataloader_it = None
        self.actor_rollout_wg = SimpleNamespace(save_checkpoint=lambda *_, **__: None)
        self.checkpoint_callback = build_checkpoint_callback(self.config)
        self.use_reference_policy = self.use_critic = False
        self.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
        self.replay_buffer = SimpleNamespace(sample=self._sample)
        self.folder, self.stop, self.all_failed = folder, stop, all_failed
        self.games, self.trained, self.saved = list[int](), list[int](), list[int]()

    def _sample(self, **_: Any) -> Any:
        if self.global_steps == self.stop:
            (self.folder / STOP_MARK).write_text("the budget is spent.")
            if self.all_failed:
                raise RuntimeError("no trajectory to sample")
        return SimpleNamespace(extra_info={}, tags=[]), {}

    def run(self, steps: int = 9) -> None:
        for self.global_steps in range(1, steps + 1):
            self.prepare_step()
            self._step_once({}, {}, 1)

    def _add_batch_to_generate(self) -> None:
        self.games += self._fetch_one_gen_batch()["game"].tolist()

    def _compute_old_log_prob(self, batch: Any, metrics: Any) -> Any:
        return batch

    _compute_advantage = _compute_old_log_prob

    def _update_actor(self, batch: Any, metrics: Any) -> Any:
        self.trained.append(self.global_steps)
        metrics |= {"actor/loss": 0.1, "actor/grad_norm": 1.0, "actor/lr": 1.0}
        return batch

    def _save_checkpoint(self) -> None:
        self.saved.append(self.global_steps)
        super()._save_checkpoint()

    # verl's own needs its storage; the look before it is what `stop` gives verl's
    _balance_batch = plugin.before_training(lambda self, batch, metrics: batch)

    def on_sample_begin(self) -> None: ...
    def on_sample_end(self) -> None: ...
    def on_step_end(self) -> None: ...


Loop.__abstractmethods__ = frozenset()


@pytest.mark.parametrize(
    ("stop", "all_failed", "earlier", "saved"),
    [(4, False, None, [3]), (4, True, None, [3]), (4, False, 3, []), (1, False, None, [])],
    ids=["some failed", "all failed", "saved before", "first step"],
)
def test_a_stopped_run_saves_what_it_has_trained(
    tmp_path: Path, stop: int, all_failed: bool, earlier: int | None, saved: list[int]
) -> None:
    if earlier:
        (tmp_path / "checkpoints" / f"global_step_{earlier}").mkdir(parents=True)
    trainer = Loop(tmp_path, stop, all_failed)
    with pytest.raises(RunStopped, match=r"Training stops: the budget is spent\.") as stopped:
        trainer.run()
    assert ("The 3 steps before it are saved." in str(stopped.value)) == (stop == 4)
    assert (trainer.trained, trainer.saved) == (list(range(1, stop)), saved)


def test_a_stop_in_a_validation_saves_the_step_before_it(tmp_path: Path) -> None:
    trainer = Loop(tmp_path, stop=0)
    trainer.run(3)
    (tmp_path / STOP_MARK).write_text("the budget is spent.")
    trainer.val_dataloader = None  # verl's own error, as where every dialogue failed
    with pytest.raises(RunStopped, match="The 3 steps before it are saved"):
        trainer._validate()
    assert trainer.saved == [3]


def test_verl_resume_draws_no_game_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_queue, "save_checkpoint", lambda *_, **__: None)
    whole, stopped, resumed = Loop(tmp_path, stop=0), Loop(tmp_path, stop=4), Loop(tmp_path, stop=0)
    whole.run(GAMES)
    stopped.trainer_mode = "colocate_async"
    with pytest.raises(RunStopped):
        stopped.run()
    (tmp_path / STOP_MARK).unlink()  # as the launch does
    state = torch.load(tmp_path / "checkpoints" / "global_step_3" / "data.pt", weights_only=False)
    resumed.train_dataloader.load_state_dict(state)
    resumed.run(1)
    assert resumed.games == [whole.games[4]]


def test_verls_own_errors_stay_its_own(tmp_path: Path) -> None:
    trainer = Loop(tmp_path, stop=0)
    trainer.replay_buffer.sample = lambda **_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    assert trainer.saved == []


def test_verl_loads_it_from_the_runs_config() -> None:
    """In the trainer's process too, before its first step (`PPOTrainer._init_tokenizer`)."""
    assert settings(parse_config({"verl": {"gpus": 1}}))["actor_rollout_ref.model.external_lib"] == plugin.__name__
    assert hasattr(PPOTrainer._balance_batch, "__wrapped__")
