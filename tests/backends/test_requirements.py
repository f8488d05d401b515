"""What a game must say for a config to be trained with it."""

from __future__ import annotations

import pytest

from slim_rl.backends.ready import check_training
from slim_rl.config import parse_config
from slim_rl.errors import ConfigError

ALONE = {"environment": "examples.secret_number.SecretNumber"}


@pytest.mark.parametrize("credit", ["turn_credit", "expected_credit"])
def test_expected_credit_without_state_values_is_refused(credit: str) -> None:
    check_training(parse_config({}, [f"train.reward={credit}"]))
    with pytest.raises(ConfigError, match=rf"train\.reward={credit} needs the instrument's method"):
        check_training(parse_config(ALONE, [f"train.reward={credit}"]))


@pytest.mark.parametrize("price", ["0.1", "[0, 0.1]"])
def test_a_price_is_refused_where_no_turn_is_known_to_ask(price: str) -> None:
    check_training(parse_config({}, [f"train={{reward: price, reward_args: {{price: {price}}}}}"]))
    check_training(parse_config(ALONE))
    with pytest.raises(
        ConfigError, match=r"train\.reward_args\.price needs the instrument's method SecretNumber\.annotate"
    ):
        check_training(parse_config(ALONE, [f"train={{reward: price, reward_args: {{price: {price}}}}}"]))


@pytest.mark.parametrize(
    ("backend", "change", "refused"),
    [
        ("trl", "data.eval=null", True),
        ("verl", "data.eval=null", True),
        ("slime", "data.num_eval=0", True),
        ("trl", "train.eval_games=0", True),
        ("verl", "train.eval_games=0", False),  # which is TRL's
        ("trl", "train.eval_every=0", False),
    ],
)
def test_evaluating_during_training_needs_games(backend: str, change: str, refused: bool) -> None:
    data = {"data": {"eval": "held_out.jsonl"}, "train": {"backend": backend, "eval_every": 5}}
    check_training(parse_config(data))
    if refused:
        with pytest.raises(ConfigError, match=r"train\.eval_every=5 needs held-out games: set data\.eval"):
            check_training(parse_config(data, [change]))
    else:
        check_training(parse_config(data, [change]))


def test_evaluations_are_no_negative_number_of_steps_apart() -> None:
    with pytest.raises(ConfigError, match=r"train\.eval_every") as caught:
        parse_config({"train": {"eval_every": -1}})
    assert "\n" not in str(caught.value)
