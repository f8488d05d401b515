"""Settings that a model was trained with, read from the folder of its run.

A run's folder holds `config.yaml`, `model` and `checkpoints`. A model elsewhere has no settings.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import Any

from slim_rl.config import Config, parse_config
from slim_rl.errors import ConfigError
from slim_rl.runs import configuration

_LONGEST = 60  # characters of a setting in a message
_OF_THE_POLICY = {  # settings that belong to a policy rather than to the games it plays
    "policy": ("thinking", "temperature", "top_p"),
    "limits": ("turn_tokens", "dialogue_tokens", "context_tokens", "truncated_turn"),
}


def model_of(name: str, key: str) -> str:
    """Returns the model's folder for a run's folder, and any other name unchanged.

    Args:
        key: option or key that names it, for the message.

    Raises:
        ConfigError: the run has no model yet.
    """
    folder = Path(name)
    if (folder / "config.json").exists() or configuration(folder / "config.yaml") is None:
        return name
    if not (folder / "model" / "config.json").is_file():
        raise ConfigError(
            f"{key}={name} is the folder of a run without a model: train it to its end, or name a checkpoint."
        )
    return str(folder / "model")


def trained_config(model: str) -> Config | None:
    """Returns the config of the run that trained a model; None if the model is outside its run's folder."""
    folder = Path(model)
    run = (
        folder.parent.parent
        if folder.parent.name == "checkpoints"
        else folder.parent
        if folder.name == "model"
        else None
    )
    if run is not None and (settings := configuration(run / "config.yaml")) is not None:
        with suppress(ConfigError):  # of an older version, or of a game that is not installed
            return parse_config(settings)
    return None


def settings_of(trained: Config, environments: set[str]) -> dict[str, Any]:
    """Returns the policy's training settings that differ from the defaults, by key.

    Args:
        environments: games that it will play; `game.rules` is returned if they are the one that it was trained on.
    """
    default = Config()
    values = {
        f"{section}.{name}": getattr(getattr(trained, section), name)
        for section, names in _OF_THE_POLICY.items()
        for name in names
        if getattr(getattr(trained, section), name) != getattr(getattr(default, section), name)
    }
    rules = trained.game_settings.get("rules")
    return {**({"game.rules": rules} if rules == "none" and environments == {trained.environment} else {}), **values}


def differences(config: Config, trained: Config) -> list[str]:
    """Returns the settings of the game and the policy that differ, each as "game.n=5 (trained with 3)"."""
    if config.environment != trained.environment:
        return [f"environment={config.environment} (trained with {trained.environment})"]
    pairs = {f"game.{name}": (value, trained.game_settings.get(name)) for name, value in config.game_settings.items()}
    for section, names in _OF_THE_POLICY.items():
        pairs |= {
            f"{section}.{n}": (getattr(getattr(config, section), n), getattr(getattr(trained, section), n))
            for n in names
        }
    differ = {
        key: [shorten(str(value), _LONGEST) for value in pair] for key, pair in pairs.items() if pair[0] != pair[1]
    }
    return [f"{key}={now} (trained with {then})" for key, (now, then) in differ.items()]
