"""Suites of the benchmark: held-out games with a scripted partner and a question cost, as configs in `configs/bench`.

Invariant: a suite's version is a digest of everything that its figures depend on, except the policy: games, prompts, partner, question cost,
annotator version, canary. Results of one version are comparable.

Each arm of a suite's file is a suite, or the file itself if it has no arms. Its games are `data.num_eval` held-out games of `data.seed`,
generated on demand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from slim_rl import bundled
from slim_rl.config import PARTNERS, Config, load_config
from slim_rl.dialogue.dealing import deal
from slim_rl.dialogue.factory import make_partner
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.training_reward import make_training_reward, price_sentence
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError, did_you_mean
from slim_rl.lab.askers import Askers
from slim_rl.measured import measured

CANARY = "slim_rl-bench-5d0c3f0e-71a4-4b0f-9d0b-6f1d2f6c9a58"  # marks every file of the benchmark: never train on a marked file
MAY_CHANGE = ("policy.", "limits.", "game.rules=")  # keys of the evaluated policy, not of the suite
_FOLDER = Path("configs/bench")


@dataclass(frozen=True)
class Suite:
    """Suite of the benchmark.

    Attributes:
        name: names of its file and arm.
        dealt: config in the file.
        config: config with the policy's overrides.
        askers: cache of solved games.
    """

    name: str
    dealt: Config
    config: Config
    askers: Askers = field(default_factory=Askers)

    @property
    def price(self) -> float:
        """Question cost; the policy reads it if the config has it as a list of one."""
        prices = make_training_reward(self.dealt).question_price
        if not isinstance(prices, tuple):
            return prices
        if len(prices) > 1:
            raise ConfigError(
                f"The suite {self.name} has {len(prices)} prices in train.reward_args.price. Set one, as [{prices[0]:g}]."
            )
        return prices[0]

    @property
    def _policy_reads_price(self) -> bool:
        return isinstance(make_training_reward(self.dealt).question_price, tuple)

    @cached_property
    def rows(self) -> list[GameRow]:
        """Games of the suite, the same on every machine."""
        return list(deal(self.dealt, "eval", self.dealt.data.num_eval, name=self.name))

    @cached_property
    def version(self) -> str:
        """Version of the suite, 12 hexadecimal digits."""
        partner = make_partner(self.dealt)
        decides = {
            "canary": CANARY,
            "environment": self.dealt.environment,
            "annotator_version": measured(environment_class(self.dealt.environment)).annotator_version,
            "game": self.dealt.game_settings,
            "partner": partner.identity if partner else None,
            "price": [self.price, *([price_sentence(self.price)] if self._policy_reads_price else [])],
            "seed": self.dealt.seed,
            "deals": [[row.name, _digest([row.game_state, row.prompt])] for row in self.rows],
        }
        return _digest(decides)[:12]


def _digest(data: Any) -> str:
    return hashlib.sha256(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)).hexdigest()


def load_suites(folder: Path | None = None, names: Sequence[str] = (), overrides: Sequence[str] = ()) -> list[Suite]:
    """Returns the suites of a folder.

    Args:
        folder: folder of configs; None: slim_rl's.
        names: names of suites or files; all if empty.
        overrides: overrides as on a command line, of keys in `MAY_CHANGE`.

    Raises:
        ConfigError: a suite is unknown, a file is invalid, its partner is not scripted, or an override would change a suite.
    """
    for override in overrides:
        if not override.startswith(MAY_CHANGE):
            raise ConfigError(
                f"--set {override} would change the suite, and its figures would not be comparable. Set only keys of policy and limits, or "
                "game.rules=none for a model that was taught the rules."
            )
    folder = folder or bundled.ROOT / _FOLDER
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ConfigError(f"{folder} has no suites. Name a folder of configs such as configs/bench/matching_3x3.yaml.")
    by_file = {file.stem: _suites_of(file, overrides) for file in files}
    suites = [suite for several in by_file.values() for suite in several]
    known = {suite.name: [suite] for suite in suites} | by_file
    for name in names:
        if name not in known:
            raise ConfigError(
                f"There is no suite '{name}'. Choose from {', '.join(known)}{did_you_mean(name, known) or '.'}"
            )
    wanted = {suite.name for name in names or known for suite in known[name]}
    return [suite for suite in suites if suite.name in wanted]


def _suites_of(file: Path, overrides: Sequence[str]) -> list[Suite]:
    base = load_config(file, overrides)
    arms = base.arms if "arms" in base.model_fields_set else {}
    suites = []
    for arm, changes in (arms or {"": {}}).items():
        of_arm = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        dealt, config = load_config(file, of_arm), load_config(file, [*of_arm, *overrides])
        if config.selfplay or config.partner.kind in PARTNERS:
            raise ConfigError(
                f"{file}: partner.kind={config.partner.kind} is not scripted, so that dialogues could not be verified. Name a scripted one."
            )
        suites.append(Suite("_".join(filter(None, (file.stem, arm))), dealt, config))
    return suites
