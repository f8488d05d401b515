"""The matching game, or any game of a slim_rl config, as an environment of verifiers: ``vf-eval slim-rl-matching``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf

from slim_rl.adapters.verifiers import ChatHarness, GameTaskset, VerifiersEnv

__all__ = ["ChatHarness", "GameTaskset", "VerifiersEnv", "load_environment"]

ID = "slim-rl-matching"


def load_environment(
    config: str | Path | None = None,
    partner: str | None = None,
    num_games: int = 100,
    split: Literal["train", "eval"] = "train",
    overrides: Sequence[str] = (),
    log: str | Path | None = None,
    **env: Any,
) -> vf.Env:
    """The environment, for programs that make it themselves.

    Args:
        config: a config of slim_rl; None: the default matching game.
        partner: who sits opposite, in place of the config's `partner.kind`: shy, forthcoming, mute, openai, ...
        num_games: how many games, one a task.
        split: training or held-out games.
        overrides: changes of the config, such as ``game.n=3`` or ``partner.openai.base_url=http://127.0.0.1:8100/v1``.
        log: file that each dialogue is appended to.
        env: further keys of verifiers' own `env` section, such as ``player={"max_turns": 8}``.
    """
    taskset = {"config": config, "partner": partner, "num_games": num_games, "split": split, "log": log}
    return vf.load_environment(
        vf.resolve_env_config({"taskset": {"id": ID, "overrides": list(overrides), **taskset}, **env})
    )
