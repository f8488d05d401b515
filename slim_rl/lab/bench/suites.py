"""The benchmark's suites: held-out deals with a scripted partner at a price a question, each a config in `configs/bench`.

    a suite's version is a digest of all that its figures depend on but the policy: deals, what players are told, partner, price, instrument, canary
    so two results of one version can be compared, and a change of any of these makes another version

A suite's file is a config whose `arms`, if it names any, are a suite each. Its deals are `data.num_eval` held-out games of
`data.seed`, dealt anew wherever they are needed.
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

CANARY = "slim_rl-bench-5d0c3f0e-71a4-4b0f-9d0b-6f1d2f6c9a58"  # in every file of the benchmark: never train on one that holds it
MAY_CHANGE = ("policy.", "limits.", "game.rules=")  # what belongs to the policy that is measured, and not to the suite
_FOLDER = Path("configs/bench")


@dataclass(frozen=True)
class Suite:
    """One of them.

    Attributes:
        name: of its file, and of its arm.
        dealt: its config, as it stands in the file.
        config: the same with what was set for the policy.
        askers: the ideal asker in those of its games that were solved.
    """

    name: str
    dealt: Config
    config: Config
    askers: Askers = field(default_factory=Askers)

    @property
    def price(self) -> float:
        """Of a question. A list of one is told to the policy, as a list is everywhere."""
        prices = make_training_reward(self.dealt).question_price
        if not isinstance(prices, tuple):
            return prices
        if len(prices) > 1:
            raise ConfigError(
                f"The suite {self.name} has {len(prices)} prices in train.reward_args.price: give it one, as [{prices[0]:g}]."
            )
        return prices[0]

    @property
    def _told(self) -> bool:
        return isinstance(make_training_reward(self.dealt).question_price, tuple)

    @cached_property
    def rows(self) -> list[GameRow]:
        """Its games, the same on every machine."""
        return list(deal(self.dealt, "eval", self.dealt.data.num_eval, name=self.name))

    @cached_property
    def version(self) -> str:
        """Twelve digits."""
        partner = make_partner(self.dealt)
        decides = {
            "canary": CANARY,
            "environment": self.dealt.environment,
            "annotator_version": measured(environment_class(self.dealt.environment)).annotator_version,
            "game": self.dealt.game_settings,
            "partner": partner.identity if partner else None,
            "price": [self.price, *([price_sentence(self.price)] if self._told else [])],
            "seed": self.dealt.seed,
            "deals": [[row.name, _digest([row.game_state, row.prompt])] for row in self.rows],
        }
        return _digest(decides)[:12]


def _digest(data: Any) -> str:
    return hashlib.sha256(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)).hexdigest()


def load_suites(folder: Path | None = None, names: Sequence[str] = (), overrides: Sequence[str] = ()) -> list[Suite]:
    """The suites of a folder.

    Args:
        folder: of configs; None: those that come with slim_rl.
        names: of those that are wanted, by their own names or their file's; all if there are none.
        overrides: as on a command line, of `MAY_CHANGE` alone.

    Raises:
        ConfigError: there is no such suite, a file is wrong, its partner is not scripted, or an override would change the suite.
    """
    for override in overrides:
        if not override.startswith(MAY_CHANGE):
            raise ConfigError(
                f"--set {override} would change the suite, whose figures could not be compared with others': only keys of policy and limits, and "
                "game.rules=none for a model that was taught the rules, may be set."
            )
    folder = folder or bundled.ROOT / _FOLDER
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ConfigError(
            f"There is no suite in {folder}: name a folder of configs such as configs/bench/matching_3x3.yaml."
        )
    there = {file.stem: list(_suites_of(file, overrides)) for file in files}
    suites = [suite for several in there.values() for suite in several]
    known = {suite.name: [suite] for suite in suites} | there
    for name in names:
        if name not in known:
            raise ConfigError(
                f"There is no suite '{name}': choose {', '.join(known)}{did_you_mean(name, known) or '.'}"
            )
    wanted = {suite.name for name in names or known for suite in known[name]}
    return [suite for suite in suites if suite.name in wanted]


def _suites_of(file: Path, overrides: Sequence[str]) -> list[Suite]:
    base = load_config(file, overrides)
    arms = base.arms if "arms" in base.model_fields_set else {}
    made = []
    for arm, changes in (arms or {"": {}}).items():
        words = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        dealt, config = load_config(file, words), load_config(file, [*words, *overrides])
        if config.selfplay or config.partner.kind in PARTNERS:
            raise ConfigError(
                f"{file}: its partner {config.partner.kind} is not scripted, so that no dialogue could be checked; name a scripted one."
            )
        made.append(Suite("_".join(filter(None, (file.stem, arm))), dealt, config))
    return made
