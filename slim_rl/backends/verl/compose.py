"""verl's own view of a command line: hydra composes it, verl validates it. Needs verl, but no GPU."""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from collections.abc import Sequence
from typing import Any

from slim_rl.errors import ConfigError


def compose(overrides: Sequence[str]) -> Any:
    """The DictConfig that `verl.trainer.main_ppo` would train with.

    Raises:
        ConfigError: verl is not installed, has no such key, or refuses a value.
    """
    try:
        import hydra
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import validate_config
    except ImportError as error:
        raise ConfigError(f"verl cannot be imported ({error}); install it with pip install 'slim-rl[verl]'.") from error
    try:
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra.compose("ppo_trainer", list(overrides))
        checked = copy.deepcopy(config)
        checked.critic.model = None  # to check it verl would fetch the checkpoint
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            validate_config(checked, need_reference_policy(checked), need_critic(checked))
    except (HydraException, OmegaConfBaseException, AssertionError, ValueError, TypeError) as error:
        raise ConfigError(f"verl refuses this run: {_first_cause(error)}") from error
    return config


def _first_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())
