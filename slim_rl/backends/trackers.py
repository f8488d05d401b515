"""Trackers that `train.report_to` names, before a run starts: installed on this machine, and logged in to."""

from __future__ import annotations

import netrc
import os
from contextlib import suppress
from importlib.util import find_spec

from slim_rl.config import Config
from slim_rl.errors import ConfigError
from slim_rl.formats import listed


def has_wandb_login() -> bool:
    """Returns True if Weights & Biases has a key here, or needs none."""
    if os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun") or os.environ.get("WANDB_API_KEY"):
        return True
    host = (os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").rpartition("//")[2].partition("/")[0]
    with suppress(OSError, netrc.NetrcParseError):
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    return False


def check_trackers(config: Config) -> None:
    """Raises ConfigError if a tracker is not installed for TRL, or has no login."""
    names = config.train.report_to
    if config.train.backend == "trl" and (missing := [name for name in names if find_spec(name) is None]):
        raise ConfigError(
            f"train.report_to={listed(missing)}: not installed here. Run pip install {' '.join(missing)}, or leave it out."
        )
    if "wandb" in names and not has_wandb_login():
        raise ConfigError(
            "train.report_to=wandb: Weights & Biases has no login here. Run wandb login, or set WANDB_API_KEY or WANDB_MODE=offline."
        )
