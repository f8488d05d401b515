"""verl's RayPPOTrainer for a game, put together from verl's own parts, for programs that drive it themselves.

    trainer = make_trainer(load_config("configs/verl_ppo.yaml"))    # in a Ray driver or actor
    trainer.init_workers()                                          # from here on it needs GPUs
    trainer.fit()

`slim-rl train --backend verl` starts verl's newer trainer instead (trainer.use_v1), which plays self-play too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slim_rl.backends.verl.compose import check_composed, compose
from slim_rl.backends.verl.data import write_data
from slim_rl.backends.verl.launch import build_overrides, run_dir
from slim_rl.backends.verl.names import PLAYED
from slim_rl.config import Config


def make_trainer(config: Config, extra_overrides: Sequence[str] = ()) -> Any:
    """A `RayPPOTrainer` with the environment's games as its dataset, the game's reward, and verl's roles and resource pool.

    GRPO becomes `grpo_played`, which leaves failed dialogues out of the baselines.

    Raises:
        ConfigError: what this trainer cannot do (`check_composed`), or what verl refuses.
    """
    from verl.single_controller.ray import RayWorkerGroup
    from verl.trainer.main_ppo_v0 import BaseTaskRunner
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
    from verl.utils.config import omega_conf_to_dataclass
    from verl.utils.dataset.rl_dataset import collate_fn

    folder = run_dir(config)
    config = config.from_anywhere()
    estimator = [f"algorithm.adv_estimator={PLAYED}"] if config.verl.adv_estimator == "grpo" else []
    verl = compose(build_overrides(config, ["trainer.use_v1=false", *estimator, *extra_overrides]))
    check_composed(config, verl)
    config.write(folder / "config.yaml")
    write_data(config, folder)

    roles = BaseTaskRunner()
    roles.add_actor_rollout_worker(verl)
    roles.add_critic_worker(verl)
    roles.add_reward_model_resource_pool(verl)
    pool = roles.init_resource_pool_mgr(verl)
    model = omega_conf_to_dataclass(verl.actor_rollout_ref.model)  # imports `plugin` too
    train, held_out = (
        create_rl_dataset(files, verl.data, model.tokenizer, model.processor, is_train=is_train)
        for files, is_train in ((verl.data.train_files, True), (verl.data.val_files, False))
    )
    return RayPPOTrainer(
        config=verl,
        tokenizer=model.tokenizer,
        processor=model.processor,
        role_worker_mapping=roles.role_worker_mapping,
        resource_pool_manager=pool,
        ray_worker_group_cls=RayWorkerGroup,
        train_dataset=train,
        val_dataset=held_out,
        collate_fn=collate_fn,
        train_sampler=create_rl_sampler(verl.data, train),
    )
