"""verl's current trainer for a game, for programs that drive it themselves.

trainer = make_trainer(load_config("configs/verl_ppo.yaml"))    # in a Ray driver or actor
fit(trainer)                                                    # from here on it needs GPUs
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from slim_rl.backends.verl.data import write_data
from slim_rl.backends.verl.launch import check
from slim_rl.backends.verl.settings import STOP_MARK, compose, settings
from slim_rl.config import Config
from slim_rl.config.trainers import from_anywhere
from slim_rl.errors import ConfigError
from slim_rl.runs import RunFolder


def make_trainer(config: Config, extra: Sequence[str] = ()) -> Any:
    """Makes verl's `PPOTrainer` of the run's mode (`trainer.v1.trainer_mode`), with the run's games and config written for its workers.

    Raises:
        ConfigError: the config asks for what verl cannot do, verl refuses a key, or the folder holds another run.
    """
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import get_trainer_cls

    check(config)
    if config.verl.reference_model not in (None, config.policy.model):
        raise ConfigError("verl.reference_model reaches Ray's workers only from slim-rl train; leave it out here.")
    verl, folder = compose(settings(config), extra), config.run_dir.absolute()
    config = from_anywhere(config)
    with RunFolder(config, folder).begin(prepare=partial(write_data, config, folder)):
        (folder / STOP_MARK).unlink(missing_ok=True)
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
