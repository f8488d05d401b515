"""Incentive check of `slim-rl doctor` and of launches: few scripted players, cached by games, partner and code."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import slim_rl
from slim_rl import backends
from slim_rl.backends.checks import EXAMINATIONS, Check, verdict
from slim_rl.config import Config
from slim_rl.dialogue.factory import partner_class
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError, DataError
from slim_rl.files import read_object, write_atomically
from slim_rl.lab.incentives.play import QUESTIONS, measure
from slim_rl.lab.incentives.results import JUDGED, Incentives

GAMES = (400, 2000)  # per player; and for the first question, if the former leave its gain open
CHECK = "gain from asking"
ADVICE = (
    "An initial policy that rarely asks may never learn to. See which behaviour is rewarded with `slim-rl lab incentives CONFIG`, and what to "
    "change in docs/how-to/check-that-asking-raises-reward.md."
)


def register() -> None:
    """Adds the check to the messages of a launch, and to doctor."""
    if launch_message not in backends.AT_THE_START:
        backends.AT_THE_START.append(launch_message)
    EXAMINATIONS[CHECK] = check_incentives


def launch_message(config: Config) -> str:
    """Returns the judgement on a config, as a warning if asking is not rewarded; "" if the game has none."""
    if (result := judge(config)) is None:
        return ""
    sentence, rewards_asking = result
    return sentence if rewards_asking else f"WARNING. {sentence} {ADVICE}"


def check_incentives(config: Config) -> Iterator[Check]:
    """Yields the check that asking raises the reward and is needed."""
    if (result := judge(config)) is not None:
        sentence, rewards_asking = result
        yield verdict(CHECK, sentence, warn="" if rewards_asking else ADVICE)


def judge(config: Config) -> tuple[str, bool] | None:
    """Returns the sentence on a config and whether it rewards asking, from the cache if possible.

    None if the game has no scripted players or frontier, or if all games failed.
    """
    path = _cache_file(config)
    with suppress(DataError, KeyError):
        cached = read_object(path)
        return str(cached["sentence"]), bool(cached["rewards_asking"])
    try:
        incentives = _measure(config)
    except ConfigError:
        return None
    if incentives.first_gain is None:
        return None
    result = {"sentence": incentives.sentence, "rewards_asking": incentives.rewards_asking}
    if not any(line.failed for line in incentives.lines):  # failed games may succeed another time
        with suppress(OSError):
            write_atomically(path, json.dumps(result))
    return incentives.sentence, incentives.rewards_asking


def _measure(config: Config) -> Incentives:
    few, many = GAMES
    config = config.changed(seed=0, data={"seed": 0})
    incentives = measure(config, few, (1, max(QUESTIONS)), everyone=False)
    if incentives.first_gain is None or not incentives.first_gain.low <= 0 < incentives.first_gain.high:
        return incentives
    again = measure(config, many, (1,), only=JUDGED)
    first = replace(incentives.curve[1], gain=again.first_gain)
    return replace(incentives, lines=tuple(first if line.name == first.name else line for line in incentives.lines))


def _cache_file(config: Config) -> Path:
    """Returns the cache's path, whose name depends on the games, the partner and the code."""
    partner = config.partner.model_dump(mode="json", exclude={"openai"})
    parts = [
        config.environment,
        config.game_settings,
        partner,
        config.data.seat,
        _package_digest(),
        _custom_digest(config),
    ]
    name = hashlib.sha256(json.dumps(parts, default=str, sort_keys=True).encode()).hexdigest()[:32]
    folder = Path(os.environ.get("SLIM_RL_CACHE") or Path.home() / ".cache" / "slim_rl")
    return folder / "incentives" / f"{name}.json"


def _custom_digest(config: Config) -> str:
    """Returns a digest of the files of a custom game and partner."""
    game, kind = environment_class(config.environment), config.partner.kind
    classes = [game] if config.selfplay or game.seats == 1 else [game, partner_class(config, kind)]
    modules = {each.__module__ for one in classes for each in getattr(one, "__mro__", ())}
    files = {
        getattr(sys.modules.get(module), "__file__", None) for module in modules if not module.startswith("slim_rl.")
    }
    digest = hashlib.sha256()
    for file in sorted(filter(None, files)):
        with suppress(OSError):  # a module need not be a readable file
            digest.update(Path(file).read_bytes())
    return digest.hexdigest()


@cache
def _package_digest() -> str:
    """Returns a digest of this package's code."""
    digest = hashlib.sha256()
    for file in sorted(Path(slim_rl.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
