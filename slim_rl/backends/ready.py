"""Checks that a launch and a dry run share: the model, the games and the partner. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from slim_rl import bundled
from slim_rl.config import Config
from slim_rl.dialogue.dealing import existing_rows, games_files
from slim_rl.dialogue.factory import make_partner
from slim_rl.errors import ConfigError, DataError, nearest
from slim_rl.formats import count
from slim_rl.partners.client import OPENAI_URL
from slim_rl.policies import check_model_name, is_model_folder


def check_ready(config: Config) -> str:
    """Checks the config's model, games and partner. Returns a sentence on what could not be looked up, or nothing.

    Raises:
        SlimError: one of them is missing or cannot be used.
    """
    missing = check_model(config.policy.model)
    check_games(config)
    try_partner(config)
    return missing


def check_model(name: str, key: str = "policy.model") -> str:
    """Checks that a model's folder holds one, and a hub name by the hub. Returns as `check_ready`."""
    known = check_model_name(name, key)
    folder = Path(bundled.model(name))
    if folder.exists() and not is_model_folder(folder):
        raise ConfigError(f"{key} '{name}' holds no model's config.json; name a folder that does.")
    return "" if known else f"The hub could not be reached to look up {name}; a start needs it in the hub's cache."


def check_games(config: Config) -> None:
    """Raises DataError if a games file cannot be used, or a step plays more games than there are."""
    for split, (path, number) in games_files(config).items():
        games = len(existing_rows(config, split)) if path.exists() else number
        twice = config.selfplay and config.train.backend == "trl"  # a game for each seat
        if split == "train" and games * (1 + twice) < config.train.games_per_step:
            raise DataError(
                f"data.train={path} has {count(games, 'game')}, too few for a step of train.games_per_step={config.train.games_per_step}; "
                "raise data.num_train, or lower it."
            )


_OTHERS = {"NUM_CPUS", "SLIME_DIRS", "SMOKE_DIR"}  # near to a setting, and something else


def check_environment(settings: Collection[str], environment: Mapping[str, str]) -> None:
    """Raises ConfigError for an environment variable whose name is nearly that of a setting, and would have no effect."""
    names = [name for name in settings if "_" in name]
    for variable in environment.keys() - set(settings) - _OTHERS:
        if "_" in variable and (near := nearest(variable, names)) and abs(len(near) - len(variable)) < 2:
            raise ConfigError(f"{variable} is not a setting; did you mean {near}?")


def try_partner(config: Config) -> None:
    """Makes the config's partner once. Its key may be missing where RAY_ADDRESS names another cluster, whose workers may have it.

    Raises:
        SlimError: it cannot be made: a key is missing, or its arguments, its prompt, its cassette or its log cannot be used.
    """
    if os.environ.get("RAY_ADDRESS") and config.partner.openai.base_url is None:
        config = config.changed(partner={"openai": {"base_url": OPENAI_URL}})  # an endpoint that is named needs no key
    make_partner(config)
