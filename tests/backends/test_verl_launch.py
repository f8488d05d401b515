"""The launcher's command line, held against the real verl: hydra composes it and verl validates it."""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")
from omegaconf import OmegaConf

from slim_rl.backends.verl.launch import check, with_models
from slim_rl.backends.verl.settings import compose
from slim_rl.backends.verl.settings import settings as build_overrides
from slim_rl.cli import main
from slim_rl.config import Config, load_config, parse_config
from slim_rl.errors import ConfigError
from tests.paths import ROOT

SHIPPED = sorted(ROOT.glob("configs/verl_*.yaml")) + sorted(ROOT.glob("examples/*.yaml"))


def at(verl: Any, name: str) -> Any:
    """The value of a dotted key of verl's."""
    for part in name.split("."):
        verl = verl[part]
    return verl


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_config_is_one_verl_takes(path: Path) -> None:
    config = load_config(path, ["train.backend=verl"])
    verl = compose(build_overrides(config))
    assert verl.data.train_batch_size == config.train.games_per_step
    for key, value in config.verl.overrides.items():
        assert at(verl, key) == value


@pytest.mark.parametrize("key", ["algorithm.gama", "algorithm.gamma.deep", "nothing"])
def test_a_wrong_key_of_the_configs_overrides_is_refused_by_name(key: str) -> None:
    with pytest.raises(ConfigError, match=f"verl refuses this run: .*{key.split('.')[-1]}"):
        compose(build_overrides(parse_config({"verl": {"overrides": {key: 1}}})))


@pytest.mark.parametrize("where", ["config", "command line"])
def test_a_wrong_estimator_is_refused_with_verls_own_list(where: str) -> None:
    wrong = {"adv_estimator": "bogus_x"} if where == "config" else {}
    extra = [] if wrong else ["algorithm.adv_estimator=bogus_x"]
    with pytest.raises(ConfigError, match="bogus_x"):
        compose(build_overrides(parse_config({"verl": wrong})), extra)


@pytest.mark.parametrize(
    "extra", ["algorithm.gama=0.9", "gamma=1", "trainer.use_v1=false", "actor_rollout_ref.actor.loss_agg_mode=median"]
)
def test_a_wrong_key_or_value_is_refused_by_name(extra: str) -> None:
    with pytest.raises(ConfigError, match=extra.split("=")[0].split(".")[-1]):
        compose(build_overrides(Config()), [extra])


@pytest.mark.filterwarnings("ignore:Disabled critic")
def test_kl_and_critic_follow_the_config() -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy

    settings = {"kl": "reward", "adv_estimator": "gae"}
    ppo = compose(build_overrides(parse_config({"train": {"kl_coef": 0.02}, "verl": settings})))
    assert ppo.algorithm.use_kl_in_reward
    assert not ppo.actor_rollout_ref.actor.use_kl_loss
    assert need_critic(ppo)

    settings = {"kl": "loss", "adv_estimator": "reinforce_plus_plus"}
    plain = compose(build_overrides(parse_config({"train": {"kl_coef": 0.02}, "verl": settings})))
    assert plain.actor_rollout_ref.actor.use_kl_loss
    assert not plain.algorithm.use_kl_in_reward
    assert need_reference_policy(plain)
    assert not need_critic(plain)

    assert not need_reference_policy(compose(build_overrides(Config())))


def test_kl_loss_gradient_equals_trl_and_slime() -> None:
    """Theirs: the estimate weighed by the ratio to the policy that sampled, which is 1 here and has a gradient all the same."""
    import torch
    from verl.trainer.ppo.core_algos import kl_penalty

    said, start = 0.3 * torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    said.requires_grad_()
    verl = compose(build_overrides(parse_config({"train": {"kl_coef": 0.02}})))
    ours = kl_penalty(said, start, verl.actor_rollout_ref.actor.kl_loss_type)
    estimate = torch.exp(start - said) - (start - said) - 1
    theirs = torch.exp(said - said.detach()) * estimate
    assert torch.allclose(ours, theirs)
    for each in (ours, theirs):
        (gradient,) = torch.autograd.grad(each.sum(), said)
        assert torch.allclose(gradient, (said - start).detach(), atol=1e-5)


def test_the_three_models_come_from_the_environment() -> None:
    named = {"POLICY_MODEL": "models/policy", "CRITIC_MODEL": "models/critic", "REF_MODEL": "models/reference"}
    verl = compose(build_overrides(with_models(Config(), named)))
    assert verl.actor_rollout_ref.model.path == "models/policy"
    assert verl.critic.model.path == "models/critic"
    assert verl.ray_kwargs.ray_init.runtime_env.env_vars.SLIM_RL_REFERENCE_MODEL == "models/reference"

    alone = build_overrides(with_models(Config(), {"POLICY_MODEL": "models/policy", "CRITIC_MODEL": ""}))
    assert alone["critic.model.path"] == "models/policy"
    assert not any("REFERENCE" in key for key in alone)


ALONE = {"environment": "slim_rl.games.matching.planning.PlanningEnv", "verl": {"mode": "single_turn"}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": {"reward": "turn_credit"}}, "needs a step's dialogues at once"),
        (
            {
                "train": {"reward": "turn_credit"},
                "environment": "examples.treasure.Treasure",
                "partner": {"kind": "honest"},
            },
            "state_values",
        ),
        ({**ALONE, "train": {"reward": "price", "reward_args": {"price": 0.1}}}, "single_turn"),
        ({"verl": {"mode": "single_turn"}}, "one-seat"),
        ({"train": {"lr_schedule": "linear"}}, "linear"),
        ({"train": {"lora": {"dropout": 0.1}}}, "dropout is 0.1, which verl does not have"),
        ({"train": {"lora": {}}, "verl": {"reference_model": "other"}}, "reference_model is other, but with"),
        ({"train": {"lr_schedule": "wsd", "lr_decay_steps": 5}}, "wsd"),
        ({"limits": {"context_tokens": 1000}}, "prompt_tokens"),
        ({"environment": "examples.secret_number.SecretNumber", "partner": {"kind": "self"}}, "one seat"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_verl_cannot_do_is_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(parse_config(settings))
        build_overrides(parse_config(settings))


def test_a_group_of_one_needs_a_critic() -> None:
    with pytest.raises(ConfigError, match="group_size"):
        parse_config({"train": {"backend": "verl", "group_size": 1}})
    parse_config({"train": {"backend": "verl", "group_size": 1}, "verl": {"adv_estimator": "gae"}})


def test_odd_values_survive_and_command_line_wins() -> None:
    odd = {
        "trainer.project_name": "it's, {a} [b] \\ \\' $x: 1\\",
        "trainer.experiment_name": "null",
        "algorithm.gamma": 0.5,
        "algorithm.lam": 0.5,
    }
    config = parse_config({"verl": {"overrides": odd}})
    verl = compose(build_overrides(config), ["algorithm.gamma=0.25"])
    assert verl.trainer.project_name == odd["trainer.project_name"]
    assert verl.trainer.experiment_name == "null"
    assert (verl.algorithm.gamma, verl.algorithm.lam) == (0.25, 0.5)


@pytest.mark.parametrize("name", ["plain", "\N{CRAB} \U0001f980", "a\u2028b\u0085c", "[x]: {y}, 'z' #", "\\"])
def test_any_path_reaches_verl(tmp_path: Path, name: str) -> None:
    folder = str(tmp_path / name)
    verl = compose(build_overrides(parse_config({"output_dir": folder, "policy": {"model": folder}})))
    assert verl.actor_rollout_ref.model.path == folder
    assert verl.trainer.default_local_dir == f"{folder}/run/checkpoints"


def test_hydras_own_command_line_reads_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the launcher starts it: verl's main_ppo with --config-path; hydra prints what it composed."""
    settings = build_overrides(parse_config({"name": "x", "train": {"steps": 7}}))
    OmegaConf.save(compose(settings, ["algorithm.gamma=0.25"]), tmp_path / "verl.yaml")
    command = ["main_ppo", "--config-path", str(tmp_path), "--config-name", "verl", "--cfg", "job"]
    monkeypatch.setattr(sys, "argv", command)
    runpy.run_module("verl.trainer.main_ppo", run_name="__main__", alter_sys=True)
    printed = capsys.readouterr().out
    assert "total_training_steps: 7" in printed
    assert "gamma: 0.25" in printed


def test_one_grammar_of_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    config = str(ROOT / "configs/verl_ppo.yaml")
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "train", config, "--dry-run", "--set", "train.steps=3", "algorithm.gamma=0.5", "--set", "seed=9",
                "data.shuffle=false",
            ]
        )  # fmt: skip
    assert not ended.value.code
    printed = capsys.readouterr().out
    assert "trainer.total_training_steps=3" in printed and "data.seed=9" in printed
    assert "algorithm.gamma=0.5" in printed and printed.rstrip().endswith("data.shuffle=false")


def test_short_and_resumed_runs_adapt_the_warm_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = [f"output_dir={tmp_path}", "name=r", "train.warmup_steps=10"]
    words = [str(ROOT / "configs/verl_ppo.yaml"), "--dry-run", *(f"--set={change}" for change in changes)]
    load_config(words[0], changes).from_anywhere().write(tmp_path / "r" / "config.yaml")
    (tmp_path / "r" / "checkpoints").mkdir()
    (tmp_path / "r" / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("2")
    with pytest.raises(SystemExit) as ended:
        main(["train", *words, "--set", "train.steps=4"])
    assert not ended.value.code
    printed = capsys.readouterr()
    assert "actor_rollout_ref.actor.optim.lr_warmup_steps=3" in printed.out
    assert "train.steps 4 is too few for a warm-up of 10 and a decay of 0: they are shortened to 3 and 0" in printed.err
    assert "r resumes from step 2 of 4, its last checkpoint" in printed.err


def test_without_verl_a_dry_run_says_that_nothing_was_checked() -> None:
    code = "import sys; sys.modules['verl'] = None; from slim_rl.cli import main; main()"
    words = ["train", str(ROOT / "configs/verl_ppo.yaml"), "--backend", "verl", "--dry-run"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "verl is not installed here" in done.stdout
    assert "algorithm.adv_estimator=gae" in done.stdout


def test_the_scripts_dry_run_prints_verls_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script starts Python with these words; what they print is shown in this process, which has imported verl."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -m ] || exec {shlex.quote(sys.executable)} "$@"\npwd; printf "%s\\n" "$@"\n'
    )
    python.chmod(0o755)
    run = subprocess.run(
        [
            "bash",
            str(ROOT / "scripts/run_verl_selfplay.sh"),
            "--dry-run",
            "--set",
            "train.steps=7",
            "data.shuffle=false",
        ],
        env=os.environ | {"PYTHON": str(python)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    folder, *words = run.stdout.splitlines()
    assert words[:2] == ["-m", "slim_rl"]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("POLICY_MODEL", "models/p")
    monkeypatch.setattr(sys, "argv", ["slim_rl", *words[2:]])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("slim_rl", run_name="__main__", alter_sys=True)
    assert not ended.value.code
    printed = capsys.readouterr().out
    assert "-m verl.trainer.main_ppo" in printed
    assert "trainer.total_training_steps=7" in printed
    assert "actor_rollout_ref.model.path=models/p" in printed
    assert printed.rstrip().endswith("data.shuffle=false")
    assert "default_agent_loop=slim_rl_selfplay" in printed


def test_an_error_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", str(ROOT / "configs/verl_ppo.yaml"), "--dry-run", "algorithm.gama=1"])
    assert ended.value.code == 1
    error = capsys.readouterr().err.strip()
    assert "gama" in error
    assert "\n" not in error


def test_eval_file_with_zero_games_is_not_used() -> None:
    data = {"eval": "data/eval.jsonl", "num_eval": 0}
    values = build_overrides(parse_config({"data": data}))
    assert values["data.val_files"] == values["data.train_files"] and values["trainer.test_freq"] == -1


@pytest.mark.parametrize(("every", "freq"), [(0, 20), (7, 7)])
def test_verl_evaluates_as_often_as_it_is_told_else_as_it_saves(every: int, freq: int) -> None:
    train = {"eval_every": every, "save_every": 20}
    assert build_overrides(parse_config({"data": {"eval": "e.jsonl"}, "train": train}))["trainer.test_freq"] == freq
