"""`slim-rl train CONFIG --backend slime --print-flags`: the flags that depend on the config, and the refusals before a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from slim_rl.backends.slime.driver import unknown_flags
from tests.fakes.cluster import Cluster, known_flags
from tests.paths import ROOT
from tests.scripts.matching_setup import GIVEN, SMALL, cluster, model, one_sentence, print_flags, printed, small

__all__ = ["cluster", "model", "small"]  # fixtures

FULL = ("--rollout-function-path", "x", "--rollout-num-gpus", "4", "--rollout-num-gpus-per-engine", "1")


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


def test_slime_evaluates_every_ten_steps_unless_told(cluster: Cluster, model: Path) -> None:
    def told(*changes: str) -> tuple[list[str] | None, int]:
        done = print_flags(cluster, *(f"--set={change}" for change in changes), MODEL=model)
        dialogues = int(done.stderr.partition(" in evaluation")[0].rpartition(" and ")[2].replace(",", ""))
        return printed(done).get("--eval-interval"), dialogues

    assert told() == (["10"], 21 * 200)  # of 200 steps: before the first, and after every tenth
    assert told("train.eval_every=25") == (["25"], 9 * 200)
    assert told("data.num_eval=0") == (None, 0)
    assert "--eval-prompt-data" not in printed(print_flags(cluster, "--set=data.num_eval=0", MODEL=model))


def test_a_fully_asynchronous_run_has_room_for_all_its_dialogues(cluster: Cluster, model: Path) -> None:
    def samples(*changes: str) -> list[str]:
        own = [f"--set={change}" for change in changes]
        return printed(print_flags(cluster, *own, given=FULL, MODEL=model))["--sglang-server-concurrency"]

    large = ("train.games_per_step=128", "train.group_size=16")
    assert samples() == ["512"]
    assert samples(*large) == ["1024"]  # two steps of 128 games in groups of 16, over 4 engines
    assert samples(*large, "slime.max_staleness=5") == ["2048"]


def test_a_step_of_selfplay_is_one_update_of_both_seats(cluster: Cluster, model: Path) -> None:
    flags = printed(print_flags(cluster, "--set=partner.kind=self", "--set=train.steps=9", MODEL=model))
    assert (flags["--rollout-batch-size"], flags["--n-samples-per-prompt"]) == (["32"], ["8"])
    assert (flags["--global-batch-size"], flags["--lr-decay-iters"]) == (["512"], ["9"])


def test_a_converted_checkpoint_is_the_start(cluster: Cluster, model: Path) -> None:
    flags = printed(print_flags(cluster, MODEL=model, TORCH_DIST="mine"))
    assert (flags["--ref-load"], flags["--hf-checkpoint"]) == ([str(cluster.folder / "mine")], [str(model)])


# --------------------------------------------------------------------------------------------------------------- sizes
@pytest.mark.parametrize(
    ("gpus", "more", "says"),
    [
        ((1, 6), ["--tensor-model-parallel-size", "2"], "over 3 copies of the model (6 GPUs, 2 per copy)"),
        ((3, 8), ["--tensor-model-parallel-size", "2"], "over 12 copies"),
        ((1, 4), ["--micro-batch-size", "3"], "in micro-batches of 3"),
        ((1, 4), ["--micro-batch-size", "$(x)"], "--micro-batch-size is '$(x)'"),
        ((1, 4), ["--global-batch-size", "96"], "slime would drop the rest"),
        ((1, 4), ["--global-batch-size", "512"], "slime would drop the rest"),
        ((1, 4), ["--global-batch-size", "2"], "Set --global-batch-size to a multiple of 4"),
        ((1, 4), ["--pipeline-model-parallel-size", "3"], "which do not divide 4"),
        ((1, 4), ["--expert-model-parallel-size", "3"], "The experts take 3 GPUs"),
        ((1, 4), ["--rollout-num-gpus-per-engine", "3"], "ENGINE_GPUS=3 does not divide"),
    ],
)
def test_a_batch_that_megatron_cannot_divide_is_refused(
    cluster: Cluster, model: Path, gpus: tuple[int, int], more: list[str], says: str
) -> None:
    given = ["--actor-num-nodes", str(gpus[0]), "--actor-num-gpus-per-node", str(gpus[1]), *more]
    told = one_sentence(print_flags(cluster, MODEL=model, given=given))
    assert says in told
    if "copies" in says:
        assert "Set train.games_per_step=30 or 33" in told
        printed(print_flags(cluster, "--set=train.games_per_step=33", MODEL=model, given=given))


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
        (["train.exploring_starts=0.5", "policy.top_p=0.9"], [], "Set policy.temperature and policy.top_p to 1"),
        (["train.exploring_starts=0.5"], ["--rollout-temperature", "0.7"], "leave --rollout-temperature out"),
        ([], ["--save", "x"], "--save is refused: the run's folder is SAVE_DIR"),
        ([], ["--partial-rollout"], "a dialogue that slime aborts is played again from its first turn; leave it out"),
        ([], ["--group-rm"], "overwrite the games' rewards"),
        ([], ["--custom-config-path", "x.yaml"], "write the keys beside slim_rl in the config"),
        ([], ["--num-steps-per-rollout", "2"], "--num-steps-per-rollout is refused"),
        ([], ["--num-gpus", "4"], "--num-gpus is not a flag of slime's; give the variable NUM_GPUS=... instead."),
        ([], ["--partner=shy"], "--partner is not a flag of slime's; give --set partner.kind=... instead."),
        ([], ["--dry-rum"], "--dry-rum is not a flag of slime's; did you mean --dry-run?"),
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
        ({"MODEL": "Qwen/Qwen3-4B", "NUM_NODES": "2"}, "a folder on a disk that all of them see"),
        ({"NUM_GPU": "4"}, "NUM_GPU is not a setting; did you mean NUM_GPUS?"),
        ({"PARTNER": "shy"}, "PARTNER=shy has no effect. Give --set partner.kind=shy instead."),
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
