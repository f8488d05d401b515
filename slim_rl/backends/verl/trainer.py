"""verl's current trainer for a game, for programs that drive it themselves.

trainer = make_trainer(load_config("configs/verl_ppo.yaml"))    # in a Ray driver or actor
fit(trainer)                                                    # from here on it needs GPUs
"""

from collections.abc import Sequence
from typing import Any

from slim_rl.backends.verl.data import write_data
from slim_rl.backends.verl.launch import check
from slim_rl.backends.verl.settings import compose, settings
from slim_rl.config import Config
from slim_rl.config.trainers import from_anywhere


def make_trainer(config: Config, extra: Sequence[str] = ()) -> Any:
    """Makes verl's `PPOTrainer` of the run's mode (`trainer.v1.trainer_mode`), with the run's games and config written for its workers.

    Raises:
        ConfigError: the config asks for what verl cannot do, or verl refuses a key.
    """
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import get_trainer_cls

    check(config)
    verl, folder = compose(settings(config), extra), config.run_dir.absolute()
    config = from_anywhere(config)
    config.write(folder / "config.yaml")
    write_data(config, folder)
    verl.transfer_queue.enable = True
    OmegaConf.resolve(verl)
    return get_trainer_cls(verl.trainer.v1.trainer_mode)(config=verl)


def fit(trainer: Any) -> None:
    """Starts the trainer's workers and engines, and trains to the end."""
    import transfer_queue
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ

    transfer_queue.init(trainer.config.transfer_queue)
    try:
        trainer.init()
        clients = {"llm_client": trainer.get_llm_client(), "teacher_client": trainer.get_teacher_client()}
        handles = trainer.get_reward_handles()
        trainer.fit(AgentLoopManagerTQ.create(config=trainer.config, reward_loop_worker_handles=handles, **clients))
    finally:
        transfer_queue.close()
