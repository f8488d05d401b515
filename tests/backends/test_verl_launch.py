"""The launcher's command line, held against the real verl: hydra composes it and verl validates it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl")
from slim_rl.backends.keys import KEYS, table
from slim_rl.backends.verl.compose import compose
from slim_rl.backends.verl.launch import build_overrides, lookup, main, with_models
from slim_rl.config import Config, load_config, parse_config
from slim_rl.errors import ConfigError

ROOT = Path(__file__).parents[2]
SHIPPED = [path for path in sorted(ROOT.glob("configs/verl_*.yaml")) + sorted(ROOT.glob("examples/*.yaml"))]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_config_is_one_verl_takes(path: Path) -> None:
    config = load_config(path, ["train.backend=verl"])
    verl = compose(build_overrides(config))
    assert verl.data.train_batch_size == config.train.games_per_step
    assert verl.actor_rollout_ref.rollout.name == config.verl.engine
    for key, value in config.verl.overrides.items():
        node = verl
        for part in key.split("."):
            node = node[part]
        assert node == value


@pytest.mark.parametrize("extra", ["algorithm.gama=0.9", "actor_rollout_ref.actor.optim.lr_rate=1", "gamma=1"])
def test_a_misspelt_key_is_refused_by_name(extra: str) -> None:
    with pytest.raises(ConfigError, match=extra.split("=")[0].split(".")[-1]):
        compose(build_overrides(Config(), [extra]))


def test_a_value_verl_refuses_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="loss_agg_mode"):
        compose(build_overrides(Config(), ["actor_rollout_ref.actor.loss_agg_mode=median"]))


def test_the_last_word_is_the_command_lines() -> None:
    config = parse_config({"verl": {"overrides": {"algorithm.gamma": 0.5}}})
    assert compose(build_overrides(config)).algorithm.gamma == 0.5
    assert compose(build_overrides(config, ["algorithm.gamma=0.25"])).algorithm.gamma == 0.25


@pytest.mark.parametrize(
    ("where", "loss", "reward"), [("loss", True, False), ("reward", False, True)], ids=["loss", "reward"]
)
def test_the_kl_goes_where_it_is_told(where: str, loss: bool, reward: bool) -> None:
    config = parse_config(
        {"train": {"kl_coef": 0.02}, "verl": {"kl": where, "kl_control": "adaptive", "kl_target": 0.3}}
    )
    verl = compose(build_overrides(config))
    assert (verl.actor_rollout_ref.actor.use_kl_loss, verl.algorithm.use_kl_in_reward) == (loss, reward)
    assert verl.actor_rollout_ref.actor.kl_loss_coef == verl.algorithm.kl_ctrl.kl_coef == 0.02
    assert (verl.algorithm.kl_ctrl.type, verl.algorithm.kl_ctrl.target_kl) == ("adaptive", 0.3)


def test_without_a_coefficient_no_reference_is_loaded() -> None:
    from verl.trainer.ppo.utils import need_reference_policy

    assert not need_reference_policy(compose(build_overrides(Config())))


@pytest.mark.parametrize(
    "estimator", ["gae", "grpo", "reinforce_plus_plus", "remax", "rloo", "opo", "grpo_passk", "gpg"]
)
def test_the_estimators_verl_has(estimator: str) -> None:
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn
    from verl.trainer.ppo.utils import need_critic

    verl = compose(build_overrides(parse_config({"verl": {"adv_estimator": estimator}})))
    assert callable(get_adv_estimator_fn(verl.algorithm.adv_estimator))
    assert need_critic(verl) == (estimator == "gae")


def test_the_three_models_come_from_the_environment() -> None:
    named = {"POLICY_MODEL": "models/policy", "CRITIC_MODEL": "models/critic", "REF_MODEL": "models/reference"}
    verl = compose(build_overrides(with_models(Config(), named)))
    assert verl.actor_rollout_ref.model.path == "models/policy"
    assert verl.critic.model.path == "models/critic"
    assert verl.ray_kwargs.ray_init.runtime_env.env_vars.SLIM_RL_REFERENCE_MODEL == "models/reference"
    alone = compose(build_overrides(with_models(Config(), {"POLICY_MODEL": "models/policy", "CRITIC_MODEL": ""})))
    assert alone.critic.model.path == "models/policy"
    assert not alone.ray_kwargs.ray_init.runtime_env.get("env_vars")


@pytest.mark.parametrize("key", [key for key in KEYS if key.verl], ids=lambda key: key.name)
def test_a_changed_key_reaches_verl(key) -> None:  # type: ignore[no-untyped-def]
    """Each row of the table: another value in the config is that value in verl's config, under each of the row's names."""
    others = {
        "policy.model": "some/model",
        "train.lr_schedule": "cosine",
        "verl.engine": "sglang",
        "verl.adv_estimator": "gae",
        "verl.kl_control": "adaptive",
        "verl.critic_model": "some/critic",
    }
    usual = lookup(Config(), key.name)
    if key.name in others:
        other: object = others[key.name]
    elif isinstance(usual, bool):
        other = not usual
    elif isinstance(usual, int):
        other = usual + 3
    else:
        other = 512 if usual is None else (usual or 0.5) * 0.5
    config = parse_config({}, [f"{key.name}={other}"])
    verl = compose(build_overrides(config))
    for name in key.verl:
        node = verl
        for part in name.split("."):
            node = node[part]
        assert node == other, name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": {"frozen": True}}, "train.frozen"),
        ({"train": {"reward": "shuffled"}}, "train.reward"),
        ({"train": {"lr_schedule": "linear"}}, "linear"),
        ({"verl": {"mode": "single_turn"}}, "one-seat"),
        ({"limits": {"context_tokens": 1000}}, "prompt_tokens"),
        ({"environment": "examples.secret_number.SecretNumber", "partner": {"kind": "self"}}, "one seat"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_verl_cannot_do_is_said(settings: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ConfigError, match=message):
        build_overrides(parse_config(settings))


def test_single_turn_answers_by_verls_own_loop() -> None:
    config = parse_config({"environment": "slim_rl.game.planning.PlanningEnv", "verl": {"mode": "single_turn"}})
    verl = compose(build_overrides(config))
    assert verl.actor_rollout_ref.rollout.agent.default_agent_loop == "single_turn_agent"


def test_values_survive_hydras_grammar() -> None:
    odd = {
        "trainer.project_name": "it's, {a} [b] \\ $x: 1",
        "trainer.experiment_name": "null",
        "trainer.logger": ["console"],
    }
    verl = compose(build_overrides(parse_config({"verl": {"overrides": odd}})))
    assert verl.trainer.project_name == odd["trainer.project_name"]
    assert verl.trainer.experiment_name == "null"


def test_the_scripts_dry_run_prints_verls_command(tmp_path: Path) -> None:
    run = subprocess.run(
        ["bash", str(ROOT / "scripts/run_verl_selfplay.sh"), "--dry-run", "train.steps=7", "trainer.nnodes=1"],
        env=os.environ | {"PYTHON": sys.executable, "POLICY_MODEL": "models/p"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr
    assert "-m verl.trainer.main_ppo" in run.stdout
    assert "trainer.total_training_steps=7" in run.stdout
    assert "actor_rollout_ref.model.path=models/p" in run.stdout
    assert "default_agent_loop=slim_rl_selfplay" in run.stdout


def test_an_error_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([str(ROOT / "configs/verl_ppo.yaml"), "--dry-run", "algorithm.gama=1"])
    assert code == 1
    error = capsys.readouterr().err.strip()
    assert "gama" in error
    assert "\n" not in error


def test_the_printed_table_is_the_documents() -> None:
    assert table() in (ROOT / "docs/config_keys.md").read_text()
