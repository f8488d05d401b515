"""The table of keys, held against the real TRL and verl, slime's flags and the config itself."""

import importlib
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl.backends import Request
from slim_rl.backends.slime.flags import parse_flags
from slim_rl.config import Config, load_config, parse_config
from slim_rl.config.section import Key
from slim_rl.config.trainers import KEYS, Trainer, lookup, shortened, values
from tests.fakes.cluster import known_flags, write_model
from tests.paths import ROOT

# Of every key that a trainer has a name for, a value that is no trainer's default.
UNUSUAL: dict[str, Any] = yaml.safe_load("""
{seed: 11, policy.model: some/model, policy.temperature: 0.7, policy.top_p: 0.9, train.steps: 37, train.games_per_step: 24,
train.group_size: 4, train.micro_batch: 12, train.learning_rate: 3.3e-6, train.lr_schedule: wsd, train.lr_decay_steps: 7,
train.warmup_steps: 5, train.weight_decay: 0.05, train.adam_beta1: 0.8, train.adam_beta2: 0.95, train.max_grad_norm: 0.7,
train.kl_coef: 0.03, train.clip_ratio: 0.15, train.scale_rewards: false, train.loss: sequence, train.save_every: 9,
train.keep_checkpoints: 5, train.eval_every: 13, train.gradient_checkpointing: true, train.report_to: [tensorboard, wandb],
limits.dialogue_tokens: 777, limits.context_tokens: 3333, verl.kl: reward, verl.adv_estimator: gae, verl.engine: sglang,
verl.critic_model: some/critic, verl.prompt_tokens: 1500, verl.gpus: 4}
""")
# Where a trainer does not have that value, or has it as its default.
INSTEAD: dict[str, dict[str, Any]] = {
    "slime": {"train.loss": "token"},
    "trl": {},
    "verl": {"train.lr_schedule": "cosine", "train.lr_decay_steps": 0},
}


def unusual(trainer: Trainer, **more: Any) -> dict[str, Any]:
    return UNUSUAL | INSTEAD[trainer] | more


def expected(trainer: Trainer, chosen: dict[str, Any]) -> dict[str, Any]:
    """The trainer's names and converted values of the chosen ones; each key's differ from what they are by default."""
    found: dict[str, Any] = {}
    for key in KEYS:
        if names := key.names(trainer):
            usual = lookup(Config(), key.name)
            mine = {name: convert(chosen[key.name]) for name, convert in names.items()}
            assert mine != {name: convert(usual) for name, convert in names.items()}, key.name
            found |= mine
    return found


def overrides(chosen: dict[str, Any]) -> list[str]:
    return [f"{name}={json.dumps(value)}" for name, value in chosen.items()]


def slime_flags(folder: Path, chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Returns the flags that the launch script gets for its config."""
    from slim_rl.backends.slime.launch import print_flags

    monkeypatch.chdir(folder)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")
    chosen["policy.model"] = str(write_model(folder, "Qwen3-0.6B"))
    changes = [*overrides(chosen), "train.backend=slime"]
    config = load_config("matching", changes)
    request = Request(
        Path("matching"), changes, config, ("--actor-num-gpus-per-node", "8"), dry_run=True, print_flags=True
    )
    return parse_flags([word for line in print_flags(request) for word in shlex.split(line)])


def test_every_key_of_the_table_is_in_slimes_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = unusual("slime")
    flags = slime_flags(tmp_path, chosen, monkeypatch)
    for flag, value in expected("slime", chosen).items():
        shown = None if value is None or value is False else [] if value is True else [str(value)]
        assert flags.get(flag) == shown, flag


def test_every_key_of_the_table_is_in_trls_arguments() -> None:
    pytest.importorskip("trl")
    from slim_rl.backends.trl.arguments import grpo_arguments

    chosen = unusual("trl")
    arguments = grpo_arguments(parse_config({}, overrides(chosen)), Path("runs/x"))
    for name, value in expected("trl", chosen).items():
        found = getattr(arguments, name)
        assert getattr(found, "value", found) == value, name


def test_every_key_of_the_table_is_in_what_verl_composes() -> None:
    pytest.importorskip("verl")
    from slim_rl.backends.verl.settings import compose
    from slim_rl.backends.verl.settings import settings as build_overrides

    chosen = unusual("verl")
    verl = compose(build_overrides(parse_config({"data": {"eval": "held_out.jsonl"}}, overrides(chosen))))
    both = [chosen["train.adam_beta1"], chosen["train.adam_beta2"]]
    betas = {f"{part}.optim.betas": both for part in ("actor_rollout_ref.actor", "critic")}
    for name, value in (expected("verl", chosen) | betas).items():
        found: Any = verl
        for part in name.split("."):
            found = found[part]
        assert found == value, name


@pytest.mark.parametrize("trainer", ["slime", "trl", "verl"])
def test_a_key_that_a_launcher_sets_too_is_refused_by_its_name(
    trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {"slime": "--max-tokens-per-gpu", "trl": "logging_steps", "verl": "trainer.total_epochs"}[trainer]
    row = Key(name="train.clip_ratio", **{trainer: {name: lambda clip: clip}})
    monkeypatch.setattr("slim_rl.config.trainers.KEYS", (*KEYS, row))
    with pytest.raises((ValueError, TypeError), match=name):
        if trainer == "slime":
            slime_flags(tmp_path, {}, monkeypatch)
        elif trainer == "verl":
            importlib.import_module("slim_rl.backends.verl.settings").settings(Config())
        else:
            pytest.importorskip("trl")
            importlib.import_module("slim_rl.backends.trl.arguments").grpo_arguments(Config(), tmp_path)


def test_every_key_is_a_configs_and_no_name_stands_twice() -> None:
    for key in KEYS:
        lookup(Config(), key.name)
        assert any((key.slime, key.trl, key.verl, key.note, key.may_change, not key.decides, key.is_read)), key.name
    for names in (
        [key.name for key in KEYS],
        *([name for key in KEYS for name in key.names(trainer)] for trainer in INSTEAD),
    ):
        assert len(names) == len(set(names))
    assert {flag for key in KEYS for flag in key.names("slime")} <= known_flags()


CONVERTED = (ROOT / "tests" / "converted_keys.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", CONVERTED)
def test_value_has_each_trainers_name_and_form(line: str) -> None:
    """Each line: trainer | keys of `train` => the trainer's names and values."""
    given, _, expected = line.partition(" => ")
    trainer, _, train = given.partition(" | ")
    found = values(parse_config({"train": yaml.safe_load(train)}), trainer)  # type: ignore[arg-type]
    assert yaml.safe_load(expected).items() <= found.items()


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
def test_trls_rate_rises_and_falls_by_its_schedule(schedule: str) -> None:
    decay = {"lr_decay_steps": 20} if schedule == "wsd" else {}
    rates = trl_rates({"lr_schedule": schedule, "warmup_steps": 10, "steps": 60, **decay})
    assert rates[:3] == pytest.approx([0.0, 0.1, 0.2]) and rates[10] == 1.0
    assert (rates[-1] == 1.0) == (schedule == "constant")
    if schedule == "wsd":
        assert set(rates[10:41]) == {1.0} and rates[-3:] == pytest.approx([0.15, 0.1, 0.05])


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
def test_short_run_has_short_warm_up_and_learns(steps: int, warmup: int, decay: int, taken: tuple[int, int]) -> None:
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
        "train.warmup_steps and train.lr_decay_steps, to change that."
    )
    assert "they are shortened to 4 and 0" in shortened(load_config("matching_1gpu", ["train.steps=5"]))
