"""verl's settings for a config. Needs verl to compose them, but no GPU."""

import contextlib
import copy
import functools
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slim_rl.backends import RESPONSE_TOKENS
from slim_rl.config import Config, read_yaml
from slim_rl.config.section import ROLLOUT
from slim_rl.config.trainers import disjoint, values
from slim_rl.dialogue.games_file import games_files
from slim_rl.errors import ConfigError

HERE = Path(__file__).parent
# Set in the job's environment on every node; `plugin` reads it in the workers.
REFERENCE_VARIABLE = "SLIM_RL_REFERENCE_MODEL"
STOP_MARK = "stopped"  # in the run's folder: why the partner takes no more calls; see `plugin`
# What verl's own config does not list and its workers read all the same.
_ADDED = ("slim_rl.", "ray_kwargs.ray_init.runtime_env.env_vars.", "data.apply_chat_template_kwargs.")


def settings(config: Config) -> dict[str, Any]:
    """Returns verl's dotted keys and their values, the last word with `verl.overrides`.

    Before these: the table of keys, those in fixed.yaml, and what the run and a dialogue need.

    Raises:
        ConfigError: the token limits leave no room for a response.
        ValueError: two of our own parts set the same key.
    """
    train = config.train
    settled = config.changed(
        train={"eval_every": (train.eval_every or train.save_every) if "eval" in games_files(config) else 0},
        verl={"critic_model": config.verl.critic_model or config.policy.model},
        limits={"dialogue_tokens": _response_tokens(config)},
    )
    fixed = read_yaml(HERE / "fixed.yaml")
    return disjoint(values(settled, "verl"), fixed, _models(config), _of_run(config)) | config.verl.overrides


def compose(settings: dict[str, Any], extra: Sequence[str] = ()) -> Any:
    """Returns the DictConfig that `verl.trainer.main_ppo` trains with: verl's own, with these settings, and `extra` as the last word.

    Raises:
        ConfigError: verl is not installed, has no such key, or refuses a value.
    """
    try:
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from verl.trainer.ppo.core_algos import get_adv_estimator_fn
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import validate_config
    except ImportError as error:
        raise ConfigError(f"verl cannot be imported ({error}); install it with pip install 'slim-rl[verl]'.") from error
    given = {word.lstrip("+~").partition("=")[0] for word in extra}
    key = ""
    try:
        config = copy.deepcopy(_of_verl(tuple(extra)))
        for key, value in settings.items():
            if key not in given:
                OmegaConf.update(config, key, value, force_add=key.startswith(_ADDED))
        get_adv_estimator_fn(config.algorithm.adv_estimator)  # verl itself finds out after its first rollout
        rows = config.actor_rollout_ref.actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
        gpus = config.trainer.n_gpus_per_node * config.trainer.nnodes
        assert rows % gpus == 0, f"its {rows} dialogues per update do not divide among {gpus} GPUs"
        checked = copy.deepcopy(config)
        checked.critic.model = None  # to check it verl would fetch the checkpoint
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            validate_config(checked, need_reference_policy(checked), need_critic(checked))
    except (HydraException, OmegaConfBaseException, AssertionError, ValueError, TypeError) as error:
        while error.__cause__ is not None:
            error = error.__cause__  # type: ignore[assignment]
        raise ConfigError(f"verl refuses this run: {' '.join(str(error).split())}") from error
    if not config.trainer.use_v1:
        raise ConfigError("trainer.use_v1=false names verl's older trainer, which slim_rl cannot drive; leave it out.")
    return config


@functools.cache  # a quarter of a second each
def _of_verl(words: tuple[str, ...]) -> Any:
    import hydra

    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer", list(words))


def _models(config: Config) -> dict[str, Any]:
    verl, betas = config.verl, [config.train.adam_beta1, config.train.adam_beta2]
    found: dict[str, Any] = {
        "actor_rollout_ref.actor.optim.betas": betas,
        "critic.optim.betas": betas,
        # what the loss `constant` divides by; verl's own is a micro-batch's longest response
        "actor_rollout_ref.actor.loss_scale_factor": _response_tokens(config),
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": _sequence_tokens(config),
        "critic.ppo_max_token_len_per_gpu": 2 * _sequence_tokens(config),
        "data.apply_chat_template_kwargs.enable_thinking": config.policy.thinking,
    }
    if verl.reference_model and verl.reference_model != config.policy.model:
        found[f"ray_kwargs.ray_init.runtime_env.env_vars.{REFERENCE_VARIABLE}"] = verl.reference_model
    if (lora := config.train.lora) is not None:
        found |= {
            "actor_rollout_ref.model.lora_rank": lora.r,
            "actor_rollout_ref.model.lora_alpha": lora.alpha,
            "actor_rollout_ref.model.target_modules": lora.target_modules,
            "actor_rollout_ref.rollout.load_format": "safetensors",
        }
    return found


def _of_run(config: Config) -> dict[str, Any]:
    folder, held_out = config.run_dir.absolute(), "eval" in games_files(config)
    single = config.verl.mode == "single_turn"
    loop = "single_turn_agent" if single else "slim_rl_dialogue"
    # Each session of self-play gives two rows to learn from; all of a step's rows make one update.
    mini_batch = config.train.games_per_step * config.seats_trained
    return {
        "slim_rl.config": str(folder / "config.yaml"),
        "data.dataloader_num_workers": 2,
        "data.filter_overlong_prompts": True,
        "data.trust_remote_code": False,
        "data.train_files": str(folder / "data/train.parquet"),
        "data.val_files": str(folder / "data" / ("eval.parquet" if held_out else "train.parquet")),
        f"{ROLLOUT}.agent.agent_loop_config_path": str(HERE / "agents.yaml"),
        f"{ROLLOUT}.agent.default_agent_loop": loop,
        f"{ROLLOUT}.max_model_len": _sequence_tokens(config),
        f"{ROLLOUT}.val_kwargs.temperature": config.policy.temperature,
        f"{ROLLOUT}.val_kwargs.top_p": config.policy.top_p,
        "actor_rollout_ref.actor.ppo_mini_batch_size": mini_batch,
        "critic.ppo_mini_batch_size": mini_batch,
        "trainer.total_epochs": config.train.steps,  # more than enough: a step is at most an epoch
        "trainer.experiment_name": config.name,
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.val_before_train": held_out,
    }


def _response_tokens(config: Config) -> int:
    limits = config.limits
    wanted = limits.dialogue_tokens or RESPONSE_TOKENS
    if limits.context_tokens is None:
        return wanted
    left = limits.context_tokens - config.verl.prompt_tokens
    if left < 1:
        raise ConfigError(
            "limits.context_tokens leaves no room for a response after verl.prompt_tokens; raise the first or lower the second."
        )
    return min(wanted, left)


def _sequence_tokens(config: Config) -> int:
    return config.verl.prompt_tokens + _response_tokens(config)
