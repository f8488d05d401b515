"""scripts/run_matching.sh on a node of fakes: the command it builds."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fakes.cluster import MODELS, Cluster, known_flags, write_model
from tests.fakes.upstream import NO_SLIME, slimes
from tests.scripts.matching_setup import (
    SCRIPT,
    command_of,
    dry_run,
    flags_of,
    launch,
    one_sentence,
    print_flags,
    printed,
    without_python,
)

NUMBERS = ["NUM_GPUS", "NUM_NODES", "TP", "ENGINE_GPUS", "ROLLOUT_GPUS", "RAY_PORT"]
COMMAND = "PPID[$(touch executed)0]"  # bash's arithmetic would run it


def test_every_flag_is_slimes_and_stands_once(cluster: Cluster, tmp_path: Path) -> None:
    """With experts; `tests/goldens` has the flags of a dense model."""
    name, own = "Qwen3-30B-A3B", ["--expert-model-parallel-size", "8", "--expert-tensor-parallel-size", "1"]
    done = dry_run(cluster, *own, MODEL=write_model(tmp_path, name), NUM_GPUS=8)
    flags = flags_of(command_of(done))
    assert set(flags) <= known_flags()
    assert flags["--num-layers"] == [str(MODELS[name]["num_hidden_layers"])], "of slime's script of that name"
    assert flags["--custom-generate-function-path"] == ["slim_rl.rollout.generate"]
    assert flags["--eval-prompt-data"][0] == "matching"
    note, *lines = done.stdout.splitlines()
    assert note.startswith("# ") and "are checked when the job starts" in note
    assert lines[0].startswith("python3 -P -m slim_rl.backends.slime.driver ")
    assert [line.split()[0] for line in lines[1:]] == list(flags), "one flag per line"


def test_every_flag_of_an_asynchronous_run_is_slimes(cluster: Cluster, model: Path) -> None:
    own = ["--lr", "3e-6", "--train-env-vars", '{"A": "b c"}', "--weight-decay=0"]
    of_config = printed(print_flags(cluster, "--set=train.kl_coef=0.01", MODEL=model))
    words = command_of(dry_run(without_python(cluster, model), *own, ASYNC=1, NUM_NODES=2))
    assert words[-len(own) :] == own and json.loads(words[-2]) == {"A": "b c"}, "the user's come last"
    flags = flags_of(words[: -len(own)]) | of_config
    assert words[4].endswith("train_async.py")
    assert set(flags) <= known_flags()
    assert "--colocate" not in flags
    assert (flags["--actor-num-gpus-per-node"], flags["--rollout-num-gpus"]) == (["4"], ["4"])
    assert "--eval-interval" in flags


def test_model_by_its_name_on_the_hub(cluster: Cluster, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--Qwen--Qwen3-4B"
    snapshot = write_model(repository / "snapshots", "Qwen3-4B").rename(repository / "snapshots" / "0a1b2c")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0a1b2c")
    flags = flags_of(command_of(dry_run(cluster, MODEL="Qwen3-4B", HF_HUB_CACHE=tmp_path / "hub")))
    assert flags["--hf-checkpoint"] == flags["--ref-load"] == [str(snapshot)]
    assert flags["--save"] == [str(cluster.folder / "runs" / "matching-Qwen3-4B")]
    unknown = print_flags(cluster, MODEL="Qwen3-4000B")
    assert printed(unknown)["--hf-checkpoint"] == ["Qwen/Qwen3-4000B"]
    assert "could not be reached" in unknown.stderr


def test_dry_run_writes_nothing_and_needs_no_slime_or_gpu(tmp_path: Path, model: Path, small: Path) -> None:
    laptop = Cluster.build(tmp_path / "laptop", gpus=False)
    before = sorted(tmp_path.rglob("*"))
    done = dry_run(laptop, MODEL=model, CONFIG=small, SLIME_DIR="", NUM_GPUS=4, CUDA_VISIBLE_DEVICES="")
    assert sorted(tmp_path.rglob("*")) == before
    comment, _, command = done.stdout.partition("\n")
    assert done.returncode == 0 and comment.startswith("#") and "SLIME_DIR" in comment
    assert r"driver \$SLIME_DIR/train.py" in command and "--num-layers" not in command and "--ref-load" in command
    refused = one_sentence(print_flags(laptop, dry=False, MODEL=model, CONFIG=small, CUDA_VISIBLE_DEVICES=""))
    assert "make run" in refused


@pytest.mark.parametrize("name", NUMBERS)
def test_a_setting_is_never_evaluated(alone: Cluster, name: str) -> None:
    assert f"{name} is '{COMMAND}'" in one_sentence(dry_run(alone, ASYNC=1, **{name: COMMAND}))
    assert not (alone.folder / "executed").exists()


def test_gpus_that_are_not_a_number_are_refused(alone: Cluster) -> None:
    for value in ("0", "-1", "two", "1.5", "1e3", "0x10", "²", " 4", "99999999999", "08"):
        assert f"NUM_GPUS is '{value}'" in one_sentence(dry_run(alone, NUM_GPUS=value))


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"NUM_GPUS": "", "TP": "", "ASYNC": ""}, "--colocate --actor-num-nodes 1 --actor-num-gpus-per-node 4"),
        ({"NUM_GPUS": 8, "ASYNC": 1}, "--actor-num-nodes 1 --actor-num-gpus-per-node 4 --rollout-num-gpus 4"),
        ({"NUM_GPUS": 8, "COLOCATE": 0, "ROLLOUT_GPUS": 2}, "--actor-num-nodes 1 --actor-num-gpus-per-node 6 --rollout-num-gpus 2"),
        ({"NUM_GPUS": 8, "NUM_NODES": 2, "ASYNC": 1}, "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-num-gpus 8"),
        ({"NUM_GPUS": 8, "NUM_NODES": 3, "ASYNC": 1, "ROLLOUT_GPUS": 8}, "--actor-num-nodes 2 --actor-num-gpus-per-node 8 --rollout-num-gpus 8"),
    ],
)  # fmt: skip
def test_gpus_are_shared_or_divided(alone: Cluster, variables: dict[str, object], gpus: str) -> None:
    words = command_of(dry_run(alone, **variables))
    node = str(variables["NUM_GPUS"] or 4)
    assert words[5 : 5 + len(gpus.split())] == gpus.split()
    assert flags_of(words)["--num-gpus-per-node"] == [node]
    assert flags_of(words)["--sglang-mem-fraction-static"] == ["0.7" if "--colocate" in words else "0.85"]


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"ASYNC": "2"}, "ASYNC is '2'"),
        ({"COLOCATE": COMMAND}, f"COLOCATE '{COMMAND}'; each must be 0 or 1."),
        ({"ASYNC": "1", "COLOCATE": "1"}, "cannot share GPUs: set COLOCATE=0."),
        ({"COLOCATE": "0", "NUM_GPUS": "1"}, "ROLLOUT_GPUS=0 leaves 1 of 1 GPUs"),
        ({"COLOCATE": "0", "ROLLOUT_GPUS": "4"}, "ROLLOUT_GPUS=4 leaves 0 of 4 GPUs for training"),
        ({"ROLLOUT_GPUS": "2"}, "training and playing share all GPUs"),
        ({"ASYNC": "1", "NUM_NODES": "2", "NUM_GPUS": "8", "ROLLOUT_GPUS": "4"}, "leaves 12 of 16 GPUs for training"),
    ],
)
def test_settings_that_contradict_are_one_sentence(alone: Cluster, variables: dict[str, str], says: str) -> None:
    assert says in one_sentence(dry_run(alone, **variables))
    assert not (alone.folder / "executed").exists()


def test_model_without_a_script_names_the_setting(cluster: Cluster, tmp_path: Path) -> None:
    tuned = write_model(tmp_path, "Qwen3-4B").rename(tmp_path / "tuned")
    told = one_sentence(dry_run(cluster, MODEL=tuned))
    assert "scripts/models/tuned.sh does not exist. Set MODEL_SCRIPT to the script of MODEL's architecture" in told
    assert "such as" in told and "scripts/models/qwen3-4B.sh." in one_sentence(dry_run(cluster, MODEL="Qwen3-4B-Base"))
    assert "Cannot read the config none.yaml" in one_sentence(dry_run(cluster, MODEL="", CONFIG="none.yaml"))
    assert "--set has no value: give --set KEY=VALUE" in one_sentence(launch(cluster, "--set", MODEL=tuned))
    script = cluster.slime / "scripts" / "models" / "qwen3-4B.sh"
    flags = flags_of(command_of(dry_run(cluster, "--set", f"policy.model={tuned}", MODEL_SCRIPT=script)))
    assert (flags["--num-layers"], flags["--hf-checkpoint"]) == (["36"], [str(tuned)]), "the config names the model"


@pytest.mark.parametrize("slime", slimes() or [None], ids=str)
def test_slimes_model_scripts_are_found_by_name(alone: Cluster, slime: Path | None) -> None:
    """And survive the script's `set -euo pipefail`."""
    if slime is None:
        pytest.skip(NO_SLIME)
    names = "Qwen/Qwen3-0.6B Qwen/Qwen3-4B-Instruct-2507 Qwen/Qwen2.5-0.5B-Instruct meta-llama/Llama-3.2-3B-Instruct"
    for name in names.split():
        assert "--num-layers" in flags_of(command_of(dry_run(alone, MODEL=name, SLIME_DIR=slime))), name
    for script in sorted((slime / "scripts" / "models").glob("*.sh")):
        printing = f'source {script} && echo "${{MODEL_ARGS[@]}}"'
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", printing], capture_output=True, text=True)
        assert done.returncode == 0 and "--num-layers" in done.stdout, script


def test_help_is_the_scripts_header(alone: Cluster) -> None:
    done = launch(alone, "--help")
    assert done.returncode == 0
    for name in (*NUMBERS, "MODEL", "SAVE_DIR", "ASYNC", "COLOCATE", "SLIME_DIR", "--dry-run"):
        assert name in done.stdout
    assert os.access(SCRIPT, os.X_OK) and "eval " not in SCRIPT.read_text()
