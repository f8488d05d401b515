"""What a game must say for a config to be trained with it."""

from __future__ import annotations

from typing import Any

import pytest

from slim_rl.backends.ready import check_training
from slim_rl.config import parse_config
from slim_rl.errors import ConfigError

ALONE: dict[str, Any] = {"environment": "examples.secret_number.SecretNumber"}
PRICE = "train={{reward: price, reward_args: {{price: {}}}}}"
EVERY = {"data": {"eval": "held_out.jsonl"}, "train": {"eval_every": 5}}
NO_GAMES = r"train\.eval_every=5 needs held-out games: set data\.eval"


@pytest.mark.parametrize(
    ("data", "changes", "refused"),
    [
        ({}, ["train.reward=turn_credit"], None),
        (ALONE, ["train.reward=turn_credit"], r"train\.reward=turn_credit needs the instrument's method"),
        (ALONE, ["train.reward=expected_credit"], r"train\.reward=expected_credit needs the instrument's method"),
        ({}, [PRICE.format("[0, 0.1]")], None),
        (ALONE, [], None),
        (
            ALONE,
            [PRICE.format("0.1")],
            r"train\.reward_args\.price needs the instrument's method SecretNumber\.annotate",
        ),
        (ALONE, [PRICE.format("[0, 0.1]")], r"train\.reward_args\.price needs the instrument's method SecretNumber"),
        (EVERY, [], None),
        (EVERY, ["train.backend=trl", "data.eval=null"], NO_GAMES),
        (EVERY, ["train.backend=verl", "data.eval=null"], NO_GAMES),
        (EVERY, ["train.backend=slime", "data.num_eval=0"], NO_GAMES),
        (EVERY, ["train.backend=trl", "train.eval_games=0"], NO_GAMES),
        (EVERY, ["train.backend=verl", "train.eval_games=0"], None),  # which is TRL's
        (EVERY, ["train.backend=trl", "train.eval_every=0"], None),
        (EVERY, ["train.eval_every=-1"], r"train\.eval_every"),
    ],
)
def test_a_game_says_what_its_training_needs(data: dict[str, Any], changes: list[str], refused: str | None) -> None:
    if refused is None:
        check_training(parse_config(data, changes))
        return
    with pytest.raises(ConfigError, match=refused) as caught:
        check_training(parse_config(data, changes))
    assert "\n" not in str(caught.value)
