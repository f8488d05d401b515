"""scripts/run_matching.sh on a node of fakes: the command it builds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slim_rl.backends.slime.parsers import complaints
from slim_rl.config import load_config
from tests.fakes.cluster import MODELS, Cluster, known_flags, write_model
from tests.scripts.matching_setup import (
    REPOSITORY,
    cluster,
    command_of,
    dry_run,
    flags_of,
    launch,
    model,
    small,
)

__all__ = ["cluster", "model", "small"]  # fixtures


@pytest.mark.parametrize("name", MODELS)
def test_every_flag_is_slimes_and_stands_once(cluster: Cluster, tmp_path: Path, name: str) -> None:
    done = dry_run(cluster, MODEL=write_model(tmp_path, name), NUM_GPUS=8)
    flags = flags_of(command_of(done))
    assert set(flags) <= known_flags()
    assert flags["--num-layers"] == [str(MODELS[name]["num_hidden_layers"])]
    assert flags["--custom-generate-function-path"] == ["slim_rl.rollout.generate"]
    assert flags["--eval-prompt-data"][0] == "matching"
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(flags), "one flag a line"


@pytest.mark.parametrize("mode", ["1", "full"])
def test_every_flag_of_an_asynchronous_run_is_slimes(cluster: Cluster, model: Path, mode: str) -> None:
    words = command_of(dry_run(cluster, "--set", "train.kl_coef=0.01", MODEL=model, ASYNC=mode, NUM_NODES=2))
    flags = flags_of(words)
    assert words[3].endswith("train_async.py")
    assert set(flags) <= known_flags()
    assert "--colocate" not in flags
    assert (flags["--actor-num-gpus-per-node"], flags["--rollout-num-gpus"]) == (["4"], ["4"])
    assert "--eval-interval" in flags
    own = flags.get("--rollout-function-path") == ["slim_rl.rollout.generate_fully_async"]
    assert own == (mode == "full")


def test_a_fully_asynchronous_run_has_room_for_all_its_dialogues(cluster: Cluster, model: Path) -> None:
    def samples(*more: str) -> list[str]:
        words = command_of(dry_run(cluster, *more, MODEL=model, ASYNC="full", NUM_GPUS=8))
        return flags_of(words)["--sglang-server-concurrency"]

    large = ("--set", "train.games_per_step=128", "--set", "train.group_size=16")
    assert samples() == ["512"]
    assert samples(*large) == ["1024"]  # two steps of 128 games in groups of 16, over 4 engines
    assert samples(*large, "--set", "slime.max_staleness=5") == ["2048"]


def test_parallelism_fits_the_gpus_that_training_has(cluster: Cluster, tmp_path: Path) -> None:
    model = write_model(tmp_path, "Qwen3-32B")

    def parallel(**variables: object) -> tuple[str, str]:
        divides = ["--set", "train.games_per_step=30"]  # over three copies of the model too
        flags = flags_of(command_of(dry_run(cluster, *divides, MODEL=model, **variables)))
        return flags["--tensor-model-parallel-size"][0], flags["--rollout-num-gpus-per-engine"][0]

    assert parallel(NUM_GPUS=8) == ("8", "4")
    assert parallel(NUM_GPUS=8, ASYNC=1) == ("4", "4")
    assert parallel(NUM_GPUS=8, ASYNC=1, ROLLOUT_GPUS=2) == ("2", "2")
    assert parallel(NUM_GPUS=8, NUM_NODES=2, ASYNC=1) == ("8", "4")


def test_config_and_settings_reach_the_flags(cluster: Cluster, model: Path, small: Path) -> None:
    overrides = ["--set", "train.scale_rewards=false", "--set", "train.report_to=[tensorboard]", "--num-rollout=9"]
    done = dry_run(cluster, *overrides, MODEL=model, CONFIG=small, EVAL_INTERVAL=5, WANDB_API_KEY="secret")
    flags = flags_of(command_of(done))
    assert flags["--num-rollout"] == ["9"]
    assert flags["--rollout-batch-size"] == ["2"]
    assert flags["--global-batch-size"] == ["4"]
    assert flags["--eval-interval"] == ["5"]
    assert {"--disable-grpo-std-normalization", "--use-tensorboard", "--use-wandb"} <= set(flags)
    assert "secret" not in done.stdout + done.stderr, "slime logs every argument it is given"


def test_eval_interval_of_the_launch_beats_the_config(cluster: Cluster, model: Path) -> None:
    def told(every: int, **variables: object) -> tuple[list[str] | None, int]:
        done = dry_run(cluster, "--set", f"train.eval_every={every}", MODEL=model, **variables)
        dialogues = int(done.stderr.partition(" in evaluation")[0].rpartition(" and ")[2].replace(",", ""))
        return flags_of(command_of(done)).get("--eval-interval"), dialogues

    assert told(0) == (["10"], 21 * 200)  # of 200 steps: before the first, and after every tenth
    assert told(25) == (["25"], 9 * 200)
    assert told(25, EVAL_INTERVAL=50) == (["50"], 5 * 200)
    assert told(25, EVAL_INTERVAL=0) == (None, 0)


def test_a_flag_of_the_users_takes_the_place_of_ours(cluster: Cluster, model: Path) -> None:
    passed = [
        "--lr",
        "3e-6",
        "--eval-prompt-data",
        "other",
        "other.jsonl",
        "--train-env-vars",
        '{"A": "b c"}',
        "--weight-decay=0",
    ]
    flags = flags_of(command_of(dry_run(cluster, *passed, MODEL=model)))
    assert flags["--lr"] == ["3e-6"]
    assert flags["--eval-prompt-data"] == ["other", "other.jsonl"]
    assert json.loads(flags["--train-env-vars"][0]) == {"A": "b c"}
    assert "--weight-decay=0" in command_of(dry_run(cluster, *passed, MODEL=model))
    assert flags["--weight-decay"] == ["0"]


def test_checkpoint_corrects_what_its_shape_leaves_free(cluster: Cluster, tmp_path: Path) -> None:
    rope = {"rope_theta": None, "rope_parameters": {"rope_theta": 5000000, "rope_type": "default"}}
    done = dry_run(cluster, MODEL=write_model(tmp_path, "Qwen3-4B", **rope, vocab_size=151940))
    flags = flags_of(command_of(done))
    assert (flags["--rotary-base"], flags["--vocab-size"]) == (["5000000"], ["151940"])
    assert "--rotary-base 5000000 from config.json" in done.stderr


def test_model_by_its_name_on_the_hub(cluster: Cluster, tmp_path: Path) -> None:
    """From the hub's cache: named after the model and not after its commit, and converted outside of the cache."""
    repository = tmp_path / "hub" / "models--Qwen--Qwen3-4B"
    snapshot = write_model(repository / "snapshots", "Qwen3-4B").rename(repository / "snapshots" / "0a1b2c")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0a1b2c")
    flags = flags_of(command_of(launch(cluster, "--dry-run", MODEL="Qwen3-4B", HF_HUB_CACHE=tmp_path / "hub")))
    assert flags["--hf-checkpoint"] == [str(snapshot)]
    assert flags["--ref-load"] == [str(cluster.folder / "runs" / "Qwen3-4B_torch_dist")]
    assert flags["--save"] == [str(cluster.folder / "runs" / "matching-Qwen3-4B-openai")]


def test_dry_run_writes_nothing(cluster: Cluster, model: Path, small: Path) -> None:
    before = sorted(cluster.folder.parent.rglob("*"))
    command_of(launch(cluster, "--dry-run", MODEL=model, CONFIG=small))
    assert sorted(cluster.folder.parent.rglob("*")) == before
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "MODEL is not set"),
        (["--model", "./nowhere"], "MODEL './nowhere' is not a folder here"),
        (["--model", "MODEL", "--set", "partner.kind=rude"], "partner.kind"),
        (["--model", "MODEL", "--set", "train.reward=turn_credit", "--use-opd"], "leave one out"),
        (["--model", "MODEL", "--set", "train.loss=constant"], "slime does not have"),
        (["--model", "MODEL", "--tp", "3"], "it must divide its 8 query groups"),
        (["--model", "MODEL", "--num-gpus", "6", "--tp", "4"], "does not divide the 6 GPUs of a node that train"),
        (["--model", "MODEL", "--no-colocate", "--num-gpus", "1"], "Choose another ROLLOUT_GPUS"),
        (["--model", "MODEL", "--async", "1", "--colocate"], "cannot share GPUs"),
        (["--model", "MODEL", "--async", "2"], "'0', '1' or 'full'"),
        (["--model", "MODEL", "--save", "x"], "SAVE_DIR"),
        (["--model", "MODEL", "lr=1"], "'lr=1' is not understood"),
        (["--model", "MODEL", "--slime-dir", "nowhere"], "set SLIME_DIR to its checkout"),
        (["--model", "MODEL", "--megatron-dir", "nowhere"], "set MEGATRON_DIR to its checkout"),
        (["--model"], "--model needs a value"),
        (
            ["--model", "MODEL", "--dry-rum"],
            "--dry-rum is neither a setting nor a flag of slime's; did you mean --dry-run?",
        ),
        (["--model", "MODEL", "--num-gpu", "4"], "did you mean --num-gpus?"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(cluster: Cluster, model: Path, words: list[str], said: str) -> None:
    done = dry_run(cluster, *(str(model) if word == "MODEL" else word for word in words))
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert cluster.calls == []


def test_model_that_slime_does_not_know(cluster: Cluster, tmp_path: Path) -> None:
    done = dry_run(cluster, MODEL=write_model(tmp_path, "Qwen3-4B", num_hidden_layers=37))
    assert done.returncode == 1
    assert "slime has no model script" in done.stderr
    assert "qwen3-4b" in done.stderr


def test_without_a_gpu_it_points_to_make_run(tmp_path: Path, model: Path, small: Path) -> None:
    cluster = Cluster.build(tmp_path / "laptop", gpus=False)
    # the machine that tests run on may have GPUs
    done = launch(cluster, MODEL=model, CONFIG=small, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert "make run" in done.stderr
    assert cluster.calls == []


def test_complaints_name_the_nearest_flag_and_repetitions() -> None:
    found = complaints(["--lr", "1", "--lr=2", "--num-rolout", "3"], {"--lr", "--num-rollout"})
    assert len(found) == 2
    assert "--lr is given 2 times" in found[0]
    assert "did you mean --num-rollout" in found[1]
    assert (
        complaints(
            ["--rollout-sample-hook-path", "a", "--rollout-sample-hook-path", "b"], {"--rollout-sample-hook-path"}
        )
        == []
    )


def test_offline_config_is_the_same_with_the_scripted_partner() -> None:
    online, offline = (
        load_config(REPOSITORY / "configs" / f"{name}.yaml") for name in ("matching", "matching_offline")
    )
    assert offline.partner.kind == "shy"
    assert offline.model_copy(update={"partner": online.partner}) == online
