"""verl's own view of a run: hydra composes it, verl validates it. Needs verl, but no GPU."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slim_rl.backends.verl.names import PLAYED, TURN_CREDIT
from slim_rl.config import Config
from slim_rl.errors import ConfigError

# What verl's own config does not list and its workers read all the same.
_ADDED = ("slim_rl.", "ray_kwargs.ray_init.runtime_env.env_vars.", "data.apply_chat_template_kwargs.")


@dataclass(frozen=True)
class Overrides:
    """Changes of a run to verl's config.

    Attributes:
        values: verl's dotted keys and their values; they go into a file.
        extra: verl's own key=value, the last word; they stay on the command line.
    """

    values: dict[str, Any]
    extra: list[str] = field(default_factory=list)

    def yaml(self) -> str:
        """Returns the file for hydra: verl's own config, and these values over it."""
        tree: dict[str, Any] = {
            "defaults": ["ppo_trainer", "_self_"],
            "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        }
        for key, value in self.values.items():
            *parents, last = key.split(".")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[last] = value
        # in ASCII: PyYAML folds some Unicode line ends that it writes unescaped
        return yaml.safe_dump(tree, sort_keys=False)


def compose(overrides: Overrides) -> Any:
    """Returns the DictConfig that `verl.trainer.main_ppo` would train with.

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
        for key in overrides.values:
            _check_known(_verls_own(), key)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "run.yaml").write_text(overrides.yaml(), encoding="utf-8")
            with hydra.initialize_config_dir(folder, version_base=None):
                config = hydra.compose("run", overrides.extra)
        _check_estimator(config.algorithm.adv_estimator)
        checked = copy.deepcopy(config)
        checked.critic.model = None  # to check it verl would fetch the checkpoint
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            validate_config(checked, need_reference_policy(checked), need_critic(checked))
    except (HydraException, OmegaConfBaseException, AssertionError, ValueError, TypeError) as error:
        raise ConfigError(f"verl refuses this run: {_first_cause(error)}") from error
    return config


def check_composed(config: Config, verl: Any) -> None:
    """Raises ConfigError where verl, by its own keys, would do something else than the config asks for.

    Args:
        verl: the DictConfig that it trains with.
    """
    train, correction = config.train, verl.algorithm.rollout_correction
    if not verl.trainer.use_v1:
        raise ConfigError(
            "trainer.use_v1=false names verl's older trainer, which slim_rl does not drive; leave it out."
        )
    if train.exploring_starts and (correction.rollout_is or correction.rollout_rs or correction.bypass_mode):
        raise ConfigError(
            "train.exploring_starts puts questions whose logprobs verl's engine does not tell, and algorithm.rollout_correction would weigh "
            "them by these: leave it out, or set train.exploring_starts to 0."
        )


@functools.cache
def _verls_own() -> Any:
    """Returns verl's config as verl ships it."""
    import hydra

    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer")


def _check_known(known: Any, key: str) -> None:
    """Raises ConfigError for a key that verl does not have, or for a group of keys.

    In a file hydra would accept an unknown key silently, and a group's value would replace everything set in the group.
    """
    if key.startswith(_ADDED):
        return
    node = known
    for part in key.split("."):
        names = list(node) if hasattr(node, "keys") else []
        if part not in names:
            raise ConfigError(
                f"verl has no key {key}: '{part}' is not one of {', '.join(map(str, names)) or 'its keys (it has none)'}."
            )
        node = node._get_node(part)
    if names := list(node) if hasattr(node, "keys") else []:
        raise ConfigError(
            f"verl.overrides gives {key}, which is a group of verl's keys; name each by its dotted name, such as {key}.{names[0]}."
        )


def _check_estimator(name: str) -> None:
    """Raises ConfigError for an estimator that verl does not have; verl itself finds out after its first rollout."""
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    if name not in ADV_ESTIMATOR_REGISTRY and name not in (PLAYED, TURN_CREDIT):
        known = ", ".join(sorted(ADV_ESTIMATOR_REGISTRY))
        raise ConfigError(
            f"verl.adv_estimator (algorithm.adv_estimator) is {name}, which verl does not have; it has {known}."
        )


def _first_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())
