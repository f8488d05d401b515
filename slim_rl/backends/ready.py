"""Checks that a launch and a dry run share: the model, the games and the partner. Nothing is written."""

import os
from pathlib import Path

from slim_rl import bundled
from slim_rl.backends import say
from slim_rl.backends.cost import estimate_cost, paid_of
from slim_rl.config import Config
from slim_rl.config.trainers import shortened
from slim_rl.dialogue.games_file import MAKE, deal, digest_of, existing_rows, games_files
from slim_rl.dialogue.log import first_trained
from slim_rl.dialogue.players import make_partners
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.environment import make_environment, reset_to, step_of
from slim_rl.errors import ConfigError, DataError
from slim_rl.formats import count
from slim_rl.partners.endpoint import OPENAI_URL
from slim_rl.policies import check_model_name, is_model_folder
from slim_rl.runs import RunFolder


def check_start(config: Config, folder: RunFolder, fresh: bool = False) -> None:
    """Checks the run's folder, games and partner, and prints what the partner will cost.

    Raises SlimError if one of them is missing or cannot be used.
    """
    folder.check(fresh)
    check_games(config, None if fresh else folder.logs)
    try_partner(config)
    if note := shortened(config):
        say(note)
    for name, dialogues, member in paid_of(config, config.train.steps * config.dialogues_played):
        say(f"{name}: {dialogues:,} dialogues in training, {estimate_cost(member, dialogues)}.")


def is_trained(name: str, folder: Path, step: int, steps: int) -> bool:
    """Returns True if a run has trained its last step. Prints that, or the step from which it resumes.

    Raises:
        ConfigError: it has trained more steps.
    """
    if step > steps:
        raise ConfigError(f"{name} has trained {step} steps; set train.steps to {step} or more, or name another run.")
    if step == steps:
        say(f"{name} is trained: all {steps} steps are in {folder}. slim-rl export makes a model of it.")
    elif step:
        say(f"{name} resumes from step {step} of {steps}, its last checkpoint in {folder}.")
    return step == steps


def check_model(name: str, key: str = "policy.model") -> None:
    """Checks that a model's folder holds one. Raises ConfigError."""
    check_model_name(name, key)
    folder = Path(bundled.model(name))
    if folder.exists() and not is_model_folder(folder):
        raise ConfigError(f"{key} '{name}' holds no model's config.json; name a folder that does.")


def check_games(config: Config, logs: Path | None = None) -> None:
    """Checks the games files and the game.

    Args:
        logs: folder of the log of a run that may be resumed; None: none.

    Raises:
        SlimError: a games file cannot be used, a step plays more games than there are, the game cannot be played, or the run began with
            other games.
    """
    for split, (path, number) in games_files(config).items():
        rows = existing_rows(config, split) if path.exists() else []
        games = len(rows) or number
        twice = config.selfplay and config.train.backend == "trl"  # a game for each seat
        if split == "train" and games * (1 + twice) < config.train.games_per_step:
            raise DataError(
                f"data.train={path} has {count(games, 'game')}, too few for a step of train.games_per_step={config.train.games_per_step}; "
                f"lower it, or make more: raise data.num_train, then `{MAKE}`."
            )
        if split == "train":
            began = first_trained(logs) if logs else None
            if began is not None and rows and digest_of(began) not in {digest_of(row.game_state) for row in rows}:
                raise DataError(
                    f"data.train={path} has other games than the run began with ({logs}); restore the file, or give the run another name "
                    "(--set name=...)."
                )
            try:
                env, row = make_environment(config), rows[0] if rows else next(deal(config, split, 1))
                reset_to(env, row.game_state)
                step_of(env, "?")
            except TypeError as error:
                raise ConfigError(
                    f"environment: {config.environment} cannot be played ({error}); correct its methods."
                ) from error


def try_partner(config: Config) -> None:
    """Makes the config's partners once. Their key may be missing where RAY_ADDRESS names another cluster, whose workers may have it.

    Raises:
        SlimError: it cannot be made: a key is missing, or its arguments, its prompt, its cassette or its log cannot be used.
    """
    if os.environ.get("RAY_ADDRESS") and config.partner.openai.base_url is None:
        config = config.changed(partner={"openai": {"base_url": OPENAI_URL}})  # an endpoint that is named needs no key
    make_partners(config)


def check_training(config: Config) -> None:
    """Raises ConfigError if the game, its files or its seats lack what training needs."""
    train = config.train
    if train.eval_every and ("eval" not in games_files(config) or (train.backend == "trl" and not train.eval_games)):
        raise ConfigError(
            f"train.eval_every={train.eval_every} needs held-out games: set data.eval, with data.num_eval and train.eval_games above 0, "
            "or set train.eval_every=0."
        )
    make_training_reward(config).check()
