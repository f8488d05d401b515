"""The table of keys, held against the real TRL, slime's flags and the config itself. (verl: test_verl_launch.py)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slim_rl.config import Config, load_config, parse_config
from slim_rl.errors import ConfigError
from slim_rl.keys import KEYS, lookup, reference, shortened, values
from tests.fakes.cluster import known_flags
from tests.paths import ROOT

OTHER: dict[str, Any] = {
    "train.lr_schedule": "cosine",
    "train.group_size": 4,
    "train.report_to": ["tensorboard"],
    "limits.dialogue_tokens": 777,
    "train.micro_batch": 32,
    "train.loss": "sequence",
}
WITH = {"train.lr_decay_steps": ["train.lr_schedule=wsd"]}  # what a key cannot be changed without


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_key_is_one_of_the_configs(key: Any) -> None:
    lookup(Config(), key.name)
    assert any((key.slime, key.trl, key.verl, key.note))


def test_no_key_and_no_name_stands_twice() -> None:
    names = [key.name for key in KEYS]
    assert len(names) == len(set(names))
    for trainer in ("slime", "trl"):
        all_names = [name for key in KEYS for name in getattr(key, trainer)]
        assert len(all_names) == len(set(all_names)), trainer


@pytest.mark.parametrize("key", [key for key in KEYS if key.trl], ids=lambda key: key.name)
def test_a_changed_key_reaches_trl(key: Any) -> None:
    pytest.importorskip("trl")
    from slim_rl.backends.trl.arguments import grpo_arguments

    usual = lookup(Config(), key.name)
    other = OTHER.get(key.name)
    if other is None:
        other = not usual if isinstance(usual, bool) else usual + 2 if isinstance(usual, int) else (usual or 1.0) / 2
    before = grpo_arguments(Config(), Path("runs/x"))
    after = grpo_arguments(parse_config({}, [f"{key.name}={other}", *WITH.get(key.name, ())]), Path("runs/x"))
    for field in key.trl:
        now = getattr(after, field)
        assert now != getattr(before, field), field
        if key.name not in (
            "train.scale_rewards",
            "train.loss",
            "train.lr_decay_steps",
        ):  # these have words of TRL's own
            assert (getattr(now, "value", now)) == other, field


def test_slime_knows_every_flag_of_the_table() -> None:
    assert {flag for key in KEYS for flag in key.slime} <= known_flags()


def test_where_the_trainers_values_differ_they_are_converted() -> None:
    plain = values(Config(), "slime")
    assert not plain["--disable-grpo-std-normalization"] and not plain["--use-kl-loss"]
    assert plain["--kl-loss-coef"] is None
    other = parse_config({"train": {"scale_rewards": False, "kl_coef": 0.01, "report_to": ["wandb"]}})
    flags = values(other, "slime")
    assert flags["--disable-grpo-std-normalization"] is True and flags["--use-kl-loss"] is True
    assert (flags["--use-wandb"], flags["--use-tensorboard"]) == (True, False)
    assert values(other, "trl")["scale_rewards"] == "none"
    assert values(other, "verl")["algorithm.norm_adv_by_std_in_grpo"] is False


def trl_rates(train: dict[str, Any]) -> list[float]:
    """The rate of each step under transformers' own schedule, as a share of its height."""
    torch = pytest.importorskip("torch")
    from transformers import get_scheduler

    config = parse_config({"train": train})
    trl, steps = values(config, "trl"), config.train.steps
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_scheduler(
        trl["lr_scheduler_type"],
        optimizer,
        trl["warmup_steps"],
        steps,
        scheduler_specific_kwargs=trl["lr_scheduler_kwargs"],
    )
    rates = []
    for _ in range(steps):
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    return rates


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "wsd"])
def test_trl_warms_up_under_every_schedule(schedule: str) -> None:
    decay = {"lr_decay_steps": 20} if schedule == "wsd" else {}
    rates = trl_rates({"lr_schedule": schedule, "warmup_steps": 10, "steps": 60, **decay})
    assert rates[:3] == pytest.approx([0.0, 0.1, 0.2]) and rates[10] == 1.0
    assert (rates[-1] == 1.0) == (schedule == "constant")


def test_a_rate_that_falls_at_the_end_is_known_to_trl_and_slime() -> None:
    train = {"lr_schedule": "wsd", "lr_decay_steps": 20, "steps": 60}
    flags = values(parse_config({"train": train}), "slime")
    assert flags["--lr-decay-style"] == "WSD" and flags["--lr-wsd-decay-style"] == "linear"
    assert flags["--lr-wsd-decay-iters"] == 20
    assert values(Config(), "slime")["--lr-wsd-decay-iters"] is None
    rates = trl_rates(train)
    assert set(rates[:41]) == {1.0}
    assert rates[-3:] == pytest.approx([0.15, 0.1, 0.05])


@pytest.mark.parametrize("train", [{"lr_schedule": "wsd"}, {"lr_decay_steps": 5}])
def test_a_decay_without_its_schedule_is_refused(train: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="lr_decay_steps"):
        parse_config({"train": train})


@pytest.mark.parametrize(
    ("steps", "warmup", "decay", "taken"),
    [
        *(
            (56, 10, 10, (10, 10)),
            (20, 10, 10, (10, 10)),
            (19, 10, 10, (9, 10)),
            (10, 10, 10, (5, 5)),
            (2, 10, 10, (1, 1)),
        ),
        *((1, 10, 10, (0, 1)), (10, 10, 0, (9, 0)), (1, 10, 0, (0, 0)), (10, 60, 1, (9, 1)), (3, 0, 5, (0, 3))),
    ],
)
def test_a_short_run_has_a_short_warm_up_and_decay_and_still_learns(
    steps: int, warmup: int, decay: int, taken: tuple[int, int]
) -> None:
    train = {"steps": steps, "warmup_steps": warmup, "lr_decay_steps": decay}
    train["lr_schedule"] = "wsd" if decay else "constant"
    config = parse_config({"train": train})
    assert max(trl_rates(train)) == 1.0, "the rate reaches its height"
    flags, verl = values(config, "slime"), values(config, "verl")
    assert (flags["--lr-warmup-iters"], flags["--lr-wsd-decay-iters"] or 0) == taken
    assert verl["actor_rollout_ref.actor.optim.lr_warmup_steps"] == taken[0] < steps
    assert bool(shortened(config)) == (taken != (warmup, decay))
    assert config.train.warmup_steps == warmup, "the config is what was asked for: the run may be made longer"


def test_what_is_shortened_is_said_with_the_ways_out() -> None:
    said = shortened(load_config("matching_local", ["train.steps=10"]))
    assert said == (
        "train.steps 10 is too few for a warm-up of 10 and a decay of 10: they are shortened to 5 and 5; raise train.steps, or set "
        "train.warmup_steps and train.lr_decay_steps, to have it otherwise."
    )
    assert "it is shortened to 4" in shortened(load_config("matching_1gpu", ["train.steps=5"]))


def test_what_the_loss_is_divided_by_has_each_trainers_name() -> None:
    names = [
        ("trl", "loss_type"),
        ("verl", "actor_rollout_ref.actor.loss_agg_mode"),
        ("slime", "--calculate-per-token-loss"),
    ]
    expected = {
        None: ["dapo", "token-mean", False],  # each trainer's own default
        "sequence": ["grpo", "seq-mean-token-mean", False],
        "token": ["dapo", "token-mean", True],
        "constant": ["dr_grpo", "seq-mean-token-sum-norm", False],
    }
    for loss, found in expected.items():
        config = parse_config({"train": {"loss": loss}})
        assert [values(config, trainer)[name] for trainer, name in names] == found


def test_the_page_of_all_keys_is_up_to_date() -> None:
    page = ROOT / "docs" / "config.md"
    assert page.read_text(encoding="utf-8") == reference(), "write it again: python -m slim_rl.keys docs/config.md"


def test_the_page_has_every_key_of_the_config() -> None:
    page = reference()
    assert all(f"| `{key.name.rpartition('.')[2]}` |" in page for key in KEYS)
    for section in ("partner.openai", "train.lora", "partner.openai.prices", "game"):
        assert f"\n## `{section}`\n" in page


def test_the_page_is_printed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "slim_rl.keys"]
    assert subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout == reference()
    subprocess.run([*command, str(tmp_path / "page.md")], cwd=ROOT, check=True)
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == reference()
