"""Checks of what training needs from the config's game, before anything starts."""

from __future__ import annotations

from slim_rl.config import Config
from slim_rl.dialogue.dealing import games_files
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError
from slim_rl.measured import says


def check_training(config: Config) -> None:
    """Raises ConfigError if the game, its files or its seats lack what training needs."""
    game, train = environment_class(config.environment), config.train
    if train.eval_every and ("eval" not in games_files(config) or (train.backend == "trl" and not train.eval_games)):
        raise ConfigError(
            f"train.eval_every={train.eval_every} needs held-out games: set data.eval, with data.num_eval and train.eval_games above 0, "
            "or set train.eval_every=0."
        )
    make_training_reward(config).check()
    if train.exploring_starts and not says(game, "questions_worth_asking"):
        raise ConfigError(
            f"train.exploring_starts={train.exploring_starts:g} needs {game.__name__}.questions_worth_asking: add that classmethod "
            "(docs/reference/environment-api.md), or set train.exploring_starts=0."
        )
    if train.exploring_starts and config.selfplay:
        raise ConfigError(
            f"train.exploring_starts={train.exploring_starts:g} forces questions on one seat, but partner.kind=self has both: set another "
            "partner.kind, or train.exploring_starts=0."
        )
