"""The launcher's command line, held against the real verl: hydra composes it and verl validates it."""

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
from verl.trainer.ppo.utils import need_critic, need_reference_policy

from slim_rl.backends.verl.launch import check, with_models
from slim_rl.backends.verl.settings import compose
from slim_rl.backends.verl.settings import settings as build_overrides
from slim_rl.cli import main
from slim_rl.config import Config, load_config, parse_config
from slim_rl.errors import ConfigError
from tests.paths import ROOT

SHIPPED = sorted(ROOT.glob("configs/verl_*.yaml")) + sorted(ROOT.glob("examples/*.yaml"))
PPO = str(ROOT / "configs/verl_ppo.yaml")


def composed(settings: dict[str, Any], *extra: str) -> Any:
    return compose(build_overrides(parse_config(settings)), list(extra))


def run(*words: str) -> int:
    """The exit status of `slim-rl train ... --dry-run`."""
    with pytest.raises(SystemExit) as ended:
        main(["train", *words, "--dry-run"])
    return int(ended.value.code or 0)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_config_is_one_verl_takes(path: Path) -> None:
    config = load_config(path, ["train.backend=verl"])
    verl = compose(build_overrides(config))
    assert verl.data.train_batch_size == config.train.games_per_step
    assert all(OmegaConf.select(verl, key) == value for key, value in config.verl.overrides.items())


ALONE = {"environment": "slim_rl.games.matching.planning.PlanningEnv", "verl": {"mode": "single_turn"}}
TREASURE = {"environment": "examples.treasure.Treasure", "partner": {"kind": "honest"}}
PRICE = {"train": {"reward": "price", "reward_args": {"price": 0.1}}}


@pytest.mark.parametrize(
    ("settings", "word", "message"),
    [
        ({"train": {"reward": "turn_credit"}}, "", "needs a step's dialogues at once"),
        ({"train": {"reward": "turn_credit"}, **TREASURE}, "", "state_values"),
        (ALONE | PRICE, "", "single_turn"),
        ({"partner": {"kind": "self"}, **PRICE}, "", "at once"),
        ({"verl": {"mode": "single_turn"}}, "", "one-seat"),
        ({"train": {"lr_schedule": "linear"}}, "", "linear"),
        ({"train": {"lora": {"dropout": 0.1}}}, "", "dropout is 0.1, which verl does not have"),
        ({"train": {"lora": {}}, "verl": {"reference_model": "other"}}, "", "reference_model is other, but with"),
        ({"limits": {"context_tokens": 1000}}, "", "prompt_tokens"),
        ({"environment": "examples.secret_number.SecretNumber", "partner": {"kind": "self"}}, "", "one seat"),
        ({"train": {"backend": "verl", "group_size": 1}}, "", "group_size"),
        # by verl itself
        ({"verl": {"overrides": {"algorithm.gama": 1}}}, "", "verl refuses this run: .*gama"),
        ({"verl": {"overrides": {"algorithm.gamma.deep": 1}}}, "", "verl refuses this run: .*deep"),
        ({"verl": {"adv_estimator": "bogus_x"}}, "", "bogus_x"),
        ({"verl": {"overrides": {"trainer.n_gpus_per_node": 3}}}, "", "128 dialogues per update do not divide among 3"),
        ({}, "algorithm.adv_estimator=bogus_x", "bogus_x"),
        ({}, "algorithm.gama=0.9", "gama"),
        ({}, "trainer.use_v1=false", "use_v1"),
        ({}, "actor_rollout_ref.actor.loss_agg_mode=median", "loss_agg_mode"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_verl_cannot_do_is_said(settings: dict[str, Any], word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(parse_config(settings))
        composed(settings, *filter(None, [word]))


@pytest.mark.filterwarnings("ignore:Disabled critic")
def test_kl_and_critic_follow_the_config() -> None:
    train = {"kl_coef": 0.02, "backend": "verl", "group_size": 1}
    ppo = composed({"train": train, "verl": {"kl": "reward", "adv_estimator": "gae"}})  # a group of one has a critic
    assert ppo.algorithm.use_kl_in_reward and not ppo.actor_rollout_ref.actor.use_kl_loss and need_critic(ppo)
    plain = composed({"train": {"kl_coef": 0.02}, "verl": {"kl": "loss", "adv_estimator": "reinforce_plus_plus"}})
    assert plain.actor_rollout_ref.actor.use_kl_loss and not plain.algorithm.use_kl_in_reward
    assert need_reference_policy(plain) and not need_critic(plain)
    assert not need_reference_policy(composed({}))


def test_the_three_models_come_from_the_environment() -> None:
    named = {"POLICY_MODEL": "models/policy", "CRITIC_MODEL": "models/critic", "REF_MODEL": "models/reference"}
    verl = compose(build_overrides(with_models(Config(), named)))
    assert (verl.actor_rollout_ref.model.path, verl.critic.model.path) == ("models/policy", "models/critic")
    assert verl.ray_kwargs.ray_init.runtime_env.env_vars.SLIM_RL_REFERENCE_MODEL == "models/reference"
    assert with_models(Config(), dict.fromkeys(named, "")) == with_models(Config(), {})
    alone = build_overrides(with_models(Config(), {"POLICY_MODEL": "models/policy"}))
    assert alone["critic.model.path"] == "models/policy" and not any("REFERENCE" in key for key in alone)


def test_odd_values_and_paths_survive_and_command_line_wins(tmp_path: Path) -> None:
    odd = {"trainer.project_name": "it's, {a} [b] \\ \\' $x: 1\\", "trainer.experiment_name": "null"}
    numbers = {"algorithm.gamma": 0.5, "algorithm.lam": 0.5}
    names = ("plain", "\N{CRAB} \U0001f980", "a\u2028b\u0085c", "[x]: {y}, 'z' #", "\\")
    folder = str(tmp_path.joinpath(*names))
    config = {"output_dir": folder, "policy": {"model": folder}, "verl": {"overrides": odd | numbers}}
    verl = composed(config, "algorithm.gamma=0.25")
    assert [verl.trainer.project_name, verl.trainer.experiment_name] == list(odd.values())
    assert (verl.algorithm.gamma, verl.algorithm.lam) == (0.25, 0.5)
    assert (verl.actor_rollout_ref.model.path, verl.trainer.default_local_dir) == (folder, f"{folder}/run/checkpoints")


def test_hydras_own_command_line_reads_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the launcher starts it: verl's main_ppo with --config-path; hydra prints what it composed."""
    verl = composed({"name": "x", "train": {"steps": 7}}, "algorithm.gamma=0.25")
    OmegaConf.save(verl, tmp_path / "verl.yaml")
    command = ["main_ppo", "--config-path", str(tmp_path), "--config-name", "verl", "--cfg", "job"]
    monkeypatch.setattr(sys, "argv", command)
    runpy.run_module("verl.trainer.main_ppo", run_name="__main__", alter_sys=True)
    printed = capsys.readouterr().out
    assert "total_training_steps: 7" in printed and "gamma: 0.25" in printed


def test_without_verl_a_dry_run_says_that_nothing_was_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "verl"]:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    assert run(PPO, "--backend", "verl") == 0
    printed = capsys.readouterr().out
    assert "verl is not installed here" in printed and "algorithm.adv_estimator=gae" in printed


def test_the_scripts_dry_run_prints_verls_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script starts Python with these words; what they print is shown in this process, which has imported verl."""
    python = tmp_path / "python"
    ours = shlex.quote(sys.executable)
    python.write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec {ours} "$@"\npwd; printf "%s\\n" "$@"\n')
    python.chmod(0o755)
    script, given = str(ROOT / "scripts/run_verl_selfplay.sh"), ["--set", "train.steps=7", "data.shuffle=false"]
    environment = os.environ | {"PYTHON": str(python)}
    printed = subprocess.check_output(["bash", script, *given], env=environment, text=True, cwd=tmp_path)
    folder, *words = printed.splitlines()
    assert words[:3] == ["-m", "slim_rl", "train"]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("POLICY_MODEL", "models/p")
    assert run(*words[3:]) == 0
    printed = capsys.readouterr().out
    assert "-m verl.trainer.main_ppo" in printed and "trainer.total_training_steps=7" in printed
    assert "actor_rollout_ref.model.path=models/p" in printed and "default_agent_loop=slim_rl_dialogue" in printed
    assert printed.rstrip().endswith("data.shuffle=false"), "verl's own words have the last one"


@pytest.mark.parametrize(
    ("data", "train", "freq"),
    [
        ({"eval": "e.jsonl"}, {"eval_every": 0, "save_every": 20}, 20),
        ({"eval": "e.jsonl"}, {"eval_every": 7, "save_every": 20}, 7),
        ({"eval": "e.jsonl", "num_eval": 0}, {}, -1),
    ],
)
def test_verl_evaluates_as_often_as_it_is_told_else_as_it_saves(data: Any, train: Any, freq: int) -> None:
    found = build_overrides(parse_config({"data": data, "train": train}))
    assert found["trainer.test_freq"] == freq
    assert (found["data.val_files"] == found["data.train_files"]) == (freq < 0), "a file with no games is not used"
