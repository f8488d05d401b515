"""The sentence on what a config pays that doctor and the start of a run print: by few players, and once for games, partner and code."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import slim_rl
from slim_rl.config import Config
from slim_rl.dialogue.factory import partner_class
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError, DataError
from slim_rl.files import read_object, write_atomically
from slim_rl.lab.incentives.found import JUDGED, Incentives
from slim_rl.lab.incentives.play import QUESTIONS, measure

GAMES = (400, 2000)  # of all players; of those that show the first question, where the former leave it open


def at_a_start(config: Config) -> tuple[str, bool] | None:
    """The sentence and whether the config pays, by few players on other games of its kind; kept for all runs of such games, partner and
    code.

    None for a game that cannot be judged so, and where games failed and left nothing to judge by.
    """
    kept = _cache_file(config)
    with suppress(DataError, KeyError):
        found = read_object(kept)
        return str(found["sentence"]), bool(found["pays"])
    try:
        measured = _measured_at_a_start(config)
    except ConfigError:
        return None
    if measured.first is None:
        return None
    result = {"sentence": measured.sentence, "pays": measured.pays}
    if not any(line.failed for line in measured.lines):  # another time these may be played to their end
        with suppress(OSError):  # what cannot be kept is played again
            write_atomically(kept, json.dumps(result))
    return measured.sentence, measured.pays


def _measured_at_a_start(config: Config) -> Incentives:
    few, many = GAMES
    config = config.changed(seed=0, data={"seed": 0})
    measured = measure(config, few, (1, max(QUESTIONS)), everyone=False)
    if measured.first is None or not measured.first.low <= 0 < measured.first.high:
        return measured
    again = measure(config, many, (1,), only=JUDGED)
    first = replace(measured.curve[1], gain=again.first)
    return replace(measured, lines=tuple(first if line.name == first.name else line for line in measured.lines))


def _cache_file(config: Config) -> Path:
    """Where the sentence of such a config is kept: named by all that it depends on, the code included."""
    partner = config.partner.model_dump(mode="json", exclude={"openai"})
    parts = [config.environment, config.game_settings, partner, config.data.seat, _code(), _own_code(config)]
    name = hashlib.sha256(json.dumps(parts, default=str, sort_keys=True).encode()).hexdigest()[:32]
    folder = Path(os.environ.get("SLIM_RL_CACHE") or Path.home() / ".cache" / "slim_rl")
    return folder / "incentives" / f"{name}.json"


def _own_code(config: Config) -> str:
    """A digest of the files that hold the game and the partner, where these are not this package's."""
    game, kind = environment_class(config.environment), config.partner.kind
    made = [game] if config.selfplay or game.seats == 1 else [game, partner_class(config, kind)]
    modules = {each.__module__ for one in made for each in getattr(one, "__mro__", ())}
    files = {
        getattr(sys.modules.get(module), "__file__", None) for module in modules if not module.startswith("slim_rl.")
    }
    digest = hashlib.sha256()
    for file in sorted(filter(None, files)):
        with suppress(OSError):  # of a module that is in no file of its own
            digest.update(Path(file).read_bytes())
    return digest.hexdigest()


@cache
def _code() -> str:
    """A digest of this package's own code."""
    digest = hashlib.sha256()
    for file in sorted(Path(slim_rl.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
