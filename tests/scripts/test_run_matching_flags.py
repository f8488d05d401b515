"""`slim-rl train CONFIG --backend slime --print-flags`: the flags that depend on the config, and the refusals before a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from slim_rl.backends.slime.driver import unknown_flags
from tests.fakes.cluster import Cluster, known_flags
from tests.paths import ROOT
from tests.scripts.matching_setup import GIVEN, SMALL, one_sentence, print_flags, printed


def test_config_reaches_the_flags(cluster: Cluster, model: Path, small: Path) -> None:
    changes = ["train.scale_rewards=false", "train.report_to=[tensorboard]", "train.steps=9", "train.eval_every=5"]
    done = print_flags(
        cluster, *(f"--set={each}" for each in changes), MODEL=model, CONFIG=small, WANDB_API_KEY="secret"
    )
    flags = printed(done)
    assert set(flags) <= known_flags()
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(flags), "one per line"
    assert (flags["--num-rollout"], flags["--eval-interval"]) == (["9"], ["5"])
    assert (flags["--rollout-batch-size"], flags["--global-batch-size"]) == (["2"], ["4"])
    assert flags["--ref-load"] == flags["--hf-checkpoint"] == [str(model)]
    assert {"--disable-grpo-std-normalization", "--use-tensorboard", "--use-wandb"} <= set(flags)
    assert "secret" not in done.stdout + done.stderr, "slime logs every argument it is given"


def test_a_step_of_selfplay_is_one_update_of_both_seats(cluster: Cluster, model: Path) -> None:
    flags = printed(print_flags(cluster, "--set=partner.kind=self", "--set=train.steps=9", MODEL=model))
    assert (flags["--rollout-batch-size"], flags["--n-samples-per-prompt"]) == (["32"], ["8"])
    assert (flags["--global-batch-size"], flags["--lr-decay-iters"]) == (["512"], ["9"])


def test_a_converted_checkpoint_is_the_start(cluster: Cluster, model: Path) -> None:
    flags = printed(print_flags(cluster, MODEL=model, TORCH_DIST="mine"))
    assert (flags["--ref-load"], flags["--hf-checkpoint"]) == ([str(cluster.folder / "mine")], [str(model)])


# --------------------------------------------------------------------------------------------------------------- sizes


def test_a_short_runs_warm_up_is_shortened(cluster: Cluster, model: Path, tmp_path: Path) -> None:
    config = tmp_path / "wsd.yaml"
    train = {**SMALL["train"], "lr_schedule": "wsd", "lr_decay_steps": 10, "warmup_steps": 10}  # type: ignore[dict-item]
    config.write_text(yaml.safe_dump({"slim_rl": {**SMALL, "train": train}}))
    done = print_flags(cluster, "--set=train.steps=10", MODEL=model, CONFIG=config)
    flags = printed(done)
    assert (flags["--lr-warmup-iters"], flags["--lr-wsd-decay-iters"]) == (["5"], ["5"])
    assert "train.steps 10 is too few for a warm-up of 10 and a decay of 10" in done.stderr


# ------------------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("changes", "own", "says"),
    [
        (["partner.kind=rude"], [], "partner.kind"),
        (["train.loss=constant"], [], "slime does not have"),
        (["train.lora.r=4"], [], "train.lora is set, but slime trains all weights"),
        (["train.reward=turn_credit"], ["--use-opd"], "leave one out"),
        ([], ["--rollout-temperature", "0.7"], "set policy.temperature"),
        ([], ["--save", "x"], "--save is refused: the run's folder is SAVE_DIR"),
        ([], ["--partial-rollout"], "a dialogue that slime aborts is played again from its first turn; leave it out"),
        ([], ["--group-rm"], "overwrite the games' rewards"),
        ([], ["--custom-config-path", "x.yaml"], "write the keys beside slim_rl in the config"),
        ([], ["--num-steps-per-rollout", "2"], "--num-steps-per-rollout is refused"),
        ([], ["--global-batch-size", "96"], "slime would drop the rest"),
        ([], ["--num-rolout", "3"], "did you mean --num-rollout?"),
        ([], ["--advantage-estimator", "grop"], "--advantage-estimator grop is none that slime has; choose grpo, ppo."),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(
    cluster: Cluster, model: Path, changes: list[str], own: list[str], says: str
) -> None:
    done = print_flags(cluster, *(f"--set={change}" for change in changes), given=[*GIVEN, *own], MODEL=model)
    assert says in one_sentence(done)
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"MODEL": "./nowhere"}, "MODEL './nowhere' is not a folder here"),
        ({"CONFIG": str(ROOT / "configs" / "verl_ppo.yaml")}, "train.group_size is 1, but GRPO compares"),
        ({"SAVE_DIR": "/tmp/.hidden"}, "names the run's folder: a plain name"),
        ({"SAVE_DIR": "/tmp/run "}, "names the run's folder: a plain name"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(
    cluster: Cluster, model: Path, variables: dict[str, str], says: str
) -> None:
    assert says in one_sentence(print_flags(cluster, **{"MODEL": model} | variables))


def test_keys_of_plug_ins_beside_ours_are_checked(cluster: Cluster, model: Path, tmp_path: Path) -> None:
    config = tmp_path / "beside.yaml"
    config.write_text(yaml.safe_dump({"slim_rl": SMALL, "train": {"steps": 7}}))
    told = one_sentence(print_flags(cluster, MODEL=model, CONFIG=config))
    assert f"{config}: 'train' stands beside 'slim_rl', where it has no effect" in told


def test_unknown_flags_name_the_nearest() -> None:
    (told,) = unknown_flags(["--lr", "1", "--lr=2", "--num-rolout", "3"], {"--lr", "--num-rollout"})
    assert told == "slime has no flag --num-rolout and would ignore it; did you mean --num-rollout?"
