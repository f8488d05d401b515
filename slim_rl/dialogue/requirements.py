"""What training with a config needs its game to say: a refusal each, before anything is started."""

from __future__ import annotations

from slim_rl.config import Config
from slim_rl.dialogue.dealing import games_files
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError
from slim_rl.measured import says


def check_training(config: Config) -> None:
    """Raises ConfigError if training needs what the config's game does not say, puts questions in self-play, or is to be evaluated on no
    games.
    """
    game, train = environment_class(config.environment), config.train
    if train.eval_every and ("eval" not in games_files(config) or (train.backend == "trl" and not train.eval_games)):
        raise ConfigError(
            f"train.eval_every is {train.eval_every}, but there are no held-out games to play: name a file in data.eval, with data.num_eval "
            "and train.eval_games above 0, or leave train.eval_every at 0."
        )
    make_training_reward(config).check()
    if train.exploring_starts and not says(game, "questions_worth_asking"):
        raise ConfigError(
            f"train.exploring_starts is set, but {game.__name__} does not say what to ask: give it a classmethod questions_worth_asking "
            "(docs/reference/environment-api.md), or set train.exploring_starts to 0."
        )
    if train.exploring_starts and config.selfplay:
        raise ConfigError(
            "train.exploring_starts puts a question for one seat, and in self-play both are the policy's: name another partner.kind, or set "
            "train.exploring_starts to 0."
        )
