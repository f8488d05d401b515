"""What a game must say for a config to be trained with it; and what the launch takes for Megatron's rules, asked of Megatron itself."""

from typing import Any

import pytest

from slim_rl.backends.ready import check_training
from slim_rl.config import load_config, parse_config
from slim_rl.config.trainers import values
from slim_rl.errors import ConfigError
from tests.fakes.upstream import import_megatron

ALONE: dict[str, Any] = {"environment": "examples.secret_number.SecretNumber"}
EVERY = {"data": {"eval": "held_out.jsonl"}, "train": {"eval_every": 5}}
NO_GAMES = r"train\.eval_every=5 needs held-out games: set data\.eval"
NEEDS = r"train\.{} needs the instrument's method"


def price(value: str) -> str:
    return f"train={{reward: price, reward_args: {{price: {value}}}}}"


@pytest.mark.parametrize(
    ("data", "changes", "refused"),
    [
        ({}, "train.reward=turn_credit", None),
        ({}, price("[0, 0.1]"), None),
        (ALONE, "", None),
        (ALONE, "train.reward=turn_credit", NEEDS.format("reward=turn_credit")),
        (ALONE, "train.reward=expected_credit", NEEDS.format("reward=expected_credit")),
        (ALONE, price("0.1"), NEEDS.format(r"reward_args\.price") + r" SecretNumber\.annotate"),
        (ALONE, price("[0, 0.1]"), NEEDS.format(r"reward_args\.price") + " SecretNumber"),
        (EVERY, "", None),
        (EVERY, "train.backend=trl data.eval=null", NO_GAMES),
        (EVERY, "train.backend=verl data.eval=null", NO_GAMES),
        (EVERY, "train.backend=slime data.num_eval=0", NO_GAMES),
        (EVERY, "train.backend=trl train.eval_games=0", NO_GAMES),
        (EVERY, "train.backend=verl train.eval_games=0", None),  # which is TRL's
        (EVERY, "train.backend=trl train.eval_every=0", None),
        (EVERY, "train.eval_every=-1", r"train\.eval_every"),
    ],
)
def test_a_game_says_what_its_training_needs(data: dict[str, Any], changes: str, refused: str | None) -> None:
    words = [changes] if "{" in changes else changes.split()
    if refused is None:
        check_training(parse_config(data, words))
        return
    with pytest.raises(ConfigError, match=refused) as caught:
        check_training(parse_config(data, words))
    assert "\n" not in str(caught.value)


def scheduler(steps: int, rate: float = 1.0, style: str = "constant", **more: Any) -> Any:
    """Megatron's schedule of a run."""
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    more = {"lr_warmup_steps": 0, "use_checkpoint_opt_param_scheduler": False, **more}
    return import_megatron("optimizer_param_scheduler").OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=rate, min_lr=0.0, lr_decay_steps=steps, lr_decay_style=style,
        start_wd=0.1, end_wd=0.1, wd_incr_steps=steps, wd_incr_style="constant", **more,
    )  # fmt: skip


@pytest.mark.parametrize("steps", [1, 2, 10, 19])
def test_megatron_accepts_warm_up_and_decay_of_short_runs(steps: int) -> None:
    flags = values(load_config("matching_local", [f"train.steps={steps}"]), "slime")

    def made(warmup: int, decay: int) -> Any:
        more = {"lr_warmup_steps": warmup, "wsd_decay_steps": decay, "lr_wsd_decay_style": "linear"}
        return scheduler(steps, style="WSD", **more)

    run, rates = made(flags["--lr-warmup-iters"], flags["--lr-wsd-decay-iters"]), []
    for _ in range(steps):
        rates.append(run.optimizer.param_groups[0]["lr"])
        run.step(1)
    assert max(rates) == 1.0
    if steps <= 10:
        with pytest.raises(AssertionError):
            made(10, 10)
