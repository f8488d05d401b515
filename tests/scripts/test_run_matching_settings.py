"""What scripts/run_matching.sh and `slim-rl train --backend slime` make of settings, sizes, plug-ins and models; mostly dry runs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from slim_rl.backends.gpus import has_nvlink
from slim_rl.backends.slime.cluster import check_save_dir, file_system, runtime_environment
from slim_rl.backends.slime.layout import needs_offload, parse_flags
from slim_rl.backends.slime.settings import Settings
from slim_rl.cli import main
from slim_rl.config import load_config
from slim_rl.errors import ConfigError
from tests.fakes.cluster import Cluster, write_model
from tests.paths import ROOT
from tests.scripts.matching_setup import (
    SMALL,
    cluster,
    command_of,
    dry_run,
    flags_of,
    launch,
    launch_here,
    model,
    small,
)

__all__ = ["cluster", "model", "small"]  # fixtures

NUMBERS = [
    "NUM_GPUS", "NUM_NODES", "NUM_ROLLOUT", "SAVE_INTERVAL", "EVAL_INTERVAL", "TP", "ROLLOUT_GPUS", "ENGINE_GPUS", "COLOCATE",
]  # fmt: skip
COMMAND = "PPID[$(touch executed)0]"  # bash's arithmetic would run it


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, done.stdout
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


# ------------------------------------------------------------------------------------------------------------ settings
def flag(name: str) -> str:
    return f"--{name.lower().replace('_', '-')}"


@pytest.mark.parametrize("name", NUMBERS)
def test_a_setting_is_taken_as_it_is_and_refused(cluster: Cluster, model: Path, name: str) -> None:
    assert f"{name} is {COMMAND!r}" in one_sentence(dry_run(cluster, MODEL=model, **{name: COMMAND}))
    if name != "COLOCATE":
        assert f"{name} is {COMMAND!r}" in one_sentence(dry_run(cluster, flag(name), COMMAND, MODEL=model))
    assert not (cluster.folder / "executed").exists()


def test_no_setting_is_ever_executed(cluster: Cluster, model: Path) -> None:
    """By the script, which hands all of them on."""
    variables = dict.fromkeys(NUMBERS, COMMAND)
    flags = [word for name in NUMBERS if name != "COLOCATE" for word in (flag(name), COMMAND)]
    for done in (
        launch(cluster, "--dry-run", MODEL=model, **variables),
        launch(cluster, "--dry-run", *flags, MODEL=model),
    ):
        assert f" is {COMMAND!r}" in one_sentence(done)
        assert not (cluster.folder / "executed").exists()


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "1e3", "0x10", "²", " 4", "99999999999"])
def test_what_is_no_number_of_gpus_is_refused_in_the_dry_run(cluster: Cluster, model: Path, value: str) -> None:
    assert f"NUM_GPUS is {value!r}" in one_sentence(dry_run(cluster, MODEL=model, NUM_GPUS=value))


def test_an_empty_variable_is_none(cluster: Cluster, model: Path) -> None:
    flags = flags_of(command_of(dry_run(cluster, MODEL=model, NUM_GPUS="", TP="", ASYNC="", DATA="")))
    assert flags["--num-gpus-per-node"] == ["4"], "as many as nvidia-smi shows"


def test_help_lists_every_setting(cluster: Cluster) -> None:
    done = launch(cluster, "--help", COLUMNS=200)
    assert done.returncode == 0
    for name in Settings.names():
        assert f"--{name.lower().replace('_', '-')}" in done.stdout


def test_the_script_holds_only_what_must_be_shell() -> None:
    text = (ROOT / "scripts" / "run_matching.sh").read_text()
    assert len(text.splitlines()) < 30
    assert "eval" not in text and "((" not in text


# ----------------------------------------------------------------------------------------------------------- two doors
def test_slim_rl_train_is_the_same_launch(cluster: Cluster, model: Path, small: Path) -> None:
    command = [sys.executable, "-m", "slim_rl.cli", "train", str(small), "--backend", "slime", "--dry-run"]
    command += ["--set", f"policy.model={model}", "--set", "train.steps=9", "--", "--num-gpus", "4", "--lr", "2e-6"]
    environment = cluster.environment | {"PYTHONPATH": str(ROOT), "PYTHON": "python3"}
    run = subprocess.run(command, env=environment, cwd=cluster.folder, capture_output=True, text=True, check=False)
    script = launch(cluster, "--dry-run", "--lr", "2e-6", MODEL=model, CONFIG=small, NUM_GPUS=4, NUM_ROLLOUT=9)
    assert command_of(run) == command_of(script)
    assert flags_of(command_of(run))["--lr"] == ["2e-6"]


@pytest.mark.parametrize(("backend", "said"), [("trl", "12 in training"), ("slime", "train.py"), ("verl", "main_ppo")])
def test_a_dry_run_of_every_backend_needs_no_slime_and_no_gpu(
    tmp_path: Path,
    model: Path,
    small: Path,
    backend: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("trl" if backend != "slime" else "yaml")
    if backend == "verl":
        pytest.importorskip("verl")
    monkeypatch.delenv("SLIME_DIR", raising=False)
    for name, value in {"CUDA_VISIBLE_DEVICES": "", "NUM_GPUS": "4"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    whole = (
        ROOT / "data" / "warmstart" if backend == "trl" else model
    )  # TRL reads the tokenizer's template, as its start does
    words = ["train", str(small), "--backend", backend, "--dry-run", "--set", f"policy.model={whole}"]
    if backend == "slime":  # in a process that has imported none
        command = [sys.executable, "-m", "slim_rl.cli", *words]
        run = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        assert said in run.stdout
        return
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code
    assert said in capsys.readouterr().out


def test_without_slime_a_dry_run_prints_what_can_be_known(cluster: Cluster, model: Path) -> None:
    done = launch(cluster, "--dry-run", MODEL=model, SLIME_DIR="")  # this process may have imported one
    assert done.returncode == 0, done.stderr
    comment, _, command = done.stdout.partition("\n")
    assert comment.startswith("#") and "SLIME_DIR" in comment
    assert command.startswith("python3 -m slim_rl.backends.slime.driver $SLIME_DIR/train.py \\\n")
    assert "--num-layers" not in command and "--ref-load" in command
    with_slime = flags_of(command_of(dry_run(cluster, MODEL=model)))
    assert set(parse_flags(shlex.split(command.replace("\\\n", " ")))) < set(with_slime)


# --------------------------------------------------------------------------------------------------------------- sizes
def test_training_takes_whole_nodes_or_a_part_of_one(cluster: Cluster, tmp_path: Path) -> None:
    model = write_model(tmp_path, "Qwen3-4B")
    told = one_sentence(dry_run(cluster, MODEL=model, NUM_NODES=2, NUM_GPUS=8, ASYNC=1, ROLLOUT_GPUS=4))
    assert "leaves 12 of 16 GPUs" in told and "Choose another ROLLOUT_GPUS" in told


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"NUM_GPUS": 6, "TP": 2}, "over 3 copies of the model (6 GPUs, 2 a copy)"),
        ({"NUM_NODES": 3, "NUM_GPUS": 8, "TP": 2}, "over 12 copies"),
        ({"NUM_GPUS": 8, "ASYNC": 1, "ROLLOUT_GPUS": 2, "TP": 2}, "over 3 copies"),
    ],
)
def test_a_batch_that_megatron_cannot_divide_is_refused(
    cluster: Cluster, tmp_path: Path, settings: dict[str, int], said: str
) -> None:
    model = write_model(tmp_path, "Qwen3-4B")
    told = one_sentence(dry_run(cluster, MODEL=model, **settings))
    assert said in told and "train.games_per_step to 30 or 33" in told
    for games in (30, 33):
        command_of(dry_run(cluster, "--set", f"train.games_per_step={games}", MODEL=model, **settings))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (["--micro-batch-size", "3"], "in micro-batches of 3"),
        (["--micro-batch-size", "$(x)"], "--micro-batch-size is '$(x)'"),
        (["--global-batch-size", "96"], "slime would drop the rest"),
        (["--global-batch-size", "512"], "slime would drop the rest"),
        (["--global-batch-size", "2"], "set --global-batch-size to a multiple of 4"),
        (["--num-steps-per-rollout", "2"], "--num-steps-per-rollout is refused"),
        (["--pipeline-model-parallel-size", "3"], "do not divide 4"),
    ],
)
def test_the_users_own_sizes_are_checked_too(cluster: Cluster, model: Path, own: list[str], said: str) -> None:
    assert said in one_sentence(dry_run(cluster, *own, MODEL=model))
    command_of(dry_run(cluster, "--global-batch-size", "128", MODEL=model))


def test_a_model_whose_groups_are_its_heads_is_split_by_them(cluster: Cluster, tmp_path: Path) -> None:
    model = write_model(tmp_path, "Qwen3-4B", num_key_value_heads=None)
    assert "it must divide its 32 query groups" in one_sentence(dry_run(cluster, MODEL=model, TP=3))


def test_a_step_of_selfplay_is_one_update_of_both_seats(cluster: Cluster, model: Path) -> None:
    flags = flags_of(command_of(dry_run(cluster, PARTNER="self", MODEL=model, NUM_ROLLOUT=9)))
    assert (flags["--rollout-batch-size"], flags["--n-samples-per-prompt"]) == (["32"], ["8"])
    assert (flags["--global-batch-size"], flags["--lr-decay-iters"]) == (["512"], ["9"])


def test_the_optimizer_is_offloaded_where_it_does_not_fit(cluster: Cluster, tmp_path: Path) -> None:
    model = write_model(tmp_path, "Qwen3-32B")

    def offloaded(**settings: object) -> bool:
        return "--optimizer-cpu-offload" in flags_of(command_of(dry_run(cluster, MODEL=model, **settings)))

    assert offloaded(NUM_GPUS=8)
    assert not offloaded(NUM_GPUS=8, NUM_NODES=8)
    assert not needs_offload(4_000_000_000, split=2, gpus=2, vocabulary=151936)


def test_mixture_of_experts_gets_slime_values_or_refusal(cluster: Cluster, tmp_path: Path) -> None:
    model = write_model(tmp_path, "Qwen3-30B-A3B")
    flags = flags_of(command_of(dry_run(cluster, MODEL=model, NUM_GPUS=8)))
    assert flags["--expert-model-parallel-size"] == ["8"] and flags["--expert-tensor-parallel-size"] == ["1"]
    assert flags["--tensor-model-parallel-size"] == ["4"] and flags["--rollout-num-gpus-per-engine"] == ["8"]
    told = one_sentence(dry_run(cluster, MODEL=model, NUM_GPUS=4))
    assert "--expert-model-parallel-size" in told
    given = ["--expert-model-parallel-size", "4", "--tp", "4", "--engine-gpus", "4"]
    flags = flags_of(command_of(dry_run(cluster, *given, MODEL=model, NUM_GPUS=4)))
    assert flags["--expert-model-parallel-size"] == ["4"]


# --------------------------------------------------------------------------------------------------------- checkpoints
def test_slime_reads_a_usual_checkpoint_itself(cluster: Cluster, model: Path, small: Path) -> None:
    cluster.reads_checkpoints()
    done = launch(cluster, MODEL=model, CONFIG=small)
    assert done.returncode == 0, done.stderr
    assert flags_of(cluster.trained["words"])["--ref-load"] == [str(model)]
    assert not any(call.startswith("convert") for call in cluster.calls)


def test_what_slime_does_not_read_is_converted(cluster: Cluster, tmp_path: Path, model: Path) -> None:
    cluster.reads_checkpoints()

    def start(model: Path, **settings: object) -> str:
        flags = flags_of(command_of(dry_run(cluster, MODEL=model, NUM_GPUS=8, **settings)))
        return flags["--ref-load"][0]

    moe = write_model(tmp_path, "Qwen3-30B-A3B")
    assert start(moe) == f"{moe}_torch_dist"
    assert start(model, TORCH_DIST="mine") == str(cluster.folder / "mine")
    (model / "pytorch_model.bin").touch()
    assert start(model) == f"{model}_torch_dist"


def test_short_run_shortens_its_warm_up(cluster: Cluster, model: Path, tmp_path: Path) -> None:
    config = tmp_path / "wsd.yaml"
    train = {**SMALL["train"], "lr_schedule": "wsd", "lr_decay_steps": 10, "warmup_steps": 10}  # type: ignore[dict-item]
    config.write_text(yaml.safe_dump({"slim_rl": {**SMALL, "train": train}}))
    done = dry_run(cluster, MODEL=model, CONFIG=config, NUM_ROLLOUT=10)
    flags = flags_of(command_of(done))
    assert (flags["--lr-warmup-iters"], flags["--lr-wsd-decay-iters"]) == (["5"], ["5"])
    assert (
        "train.steps 10 is too few for a warm-up of 10 and a decay of 10: they are shortened to 5 and 5" in done.stderr
    )
    own = dry_run(cluster, "--lr-warmup-iters", "10", MODEL=model, CONFIG=config, NUM_ROLLOUT=10)
    assert "--lr-warmup-iters is 10 in a run whose rate has 10 steps" in one_sentence(own)


def test_resumed_run_may_change_steps_and_rate(cluster: Cluster, model: Path) -> None:
    run = cluster.folder / "run"
    flag = "--override-opt-param-scheduler"
    assert flag not in flags_of(command_of(dry_run(cluster, MODEL=model, SAVE_DIR=run)))
    run.mkdir()
    (run / "latest_checkpointed_iteration.txt").write_text("2")
    again = dry_run(cluster, MODEL=model, SAVE_DIR=run)
    assert flag in flags_of(command_of(again))
    assert again.stderr.count(f"goes on from checkpoint 2 in {run}") == 1


MOUNTS = """22 1 0:20 / / rw - overlay overlay rw,lowerdir=/a
30 22 0:21 / /shared rw - nfs4 server:/x rw
31 22 8:1 / /my\\040disk rw - ext4 /dev/sda1 rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/runs/a", "overlay"),
        ("/shared/runs", "nfs4"),
        ("/sharedruns", "overlay"),
        ("/my disk/a/b", "ext4"),
        ("/", "overlay"),
    ],
)
def test_the_file_system_under_a_folder(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind
    assert file_system(Path(path), "") == ""


def test_what_would_be_gone_with_the_container_is_said() -> None:
    assert check_save_dir(Path("/shared/a"), 2, False, MOUNTS) == ""
    assert "gone with the container" in check_save_dir(Path("/runs/a"), 1, False, MOUNTS)
    assert "gone with the container" in check_save_dir(Path("/runs/a"), 2, True, MOUNTS)
    with pytest.raises(ConfigError, match="mount a shared disk"):
        check_save_dir(Path("/runs/a"), 2, False, MOUNTS)


def test_several_nodes_need_a_model_they_all_see(cluster: Cluster) -> None:
    told = one_sentence(dry_run(cluster, MODEL="Qwen/Qwen3-4B", NUM_NODES=2))
    assert "a folder on a disk that all of them see" in told


# ------------------------------------------------------------------------------------------------------ other plug-ins
def test_keys_of_other_plug_ins_join_the_runs_file(cluster: Cluster, model: Path, tmp_path: Path) -> None:
    config, plugin, run = tmp_path / "both.yaml", tmp_path / "mis.yaml", cluster.folder / "run"
    config.write_text(yaml.safe_dump({"slim_rl": SMALL, "tis_mode": "clip", "kept": 1}))
    plugin.write_text(yaml.safe_dump({"tis_mode": "truncate", "rs_veto_threshold": 1.0e-4}))
    done = launch(cluster, "--custom-config-path", plugin, MODEL=model, CONFIG=config, SAVE_DIR=run)
    assert done.returncode == 0, done.stderr
    written = yaml.safe_load((run / "config.yaml").read_text())
    assert set(written) == {"slim_rl", "tis_mode", "kept", "rs_veto_threshold"}
    assert written["tis_mode"] == "truncate" and written["slim_rl"]["train"]["games_per_step"] == 2
    assert flags_of(cluster.trained["words"])["--custom-config-path"] == [str(run / "config.yaml")]


def test_plug_ins_are_given_to_train_as_to_the_script(cluster: Cluster, model: Path, tmp_path: Path) -> None:
    config, plugin, run = tmp_path / "both.yaml", tmp_path / "mis.yaml", cluster.folder / "run"
    config.write_text(yaml.safe_dump({"slim_rl": SMALL, "tis_mode": "clip"}))
    plugin.write_text(yaml.safe_dump({"rs_veto_threshold": 1.0e-4}))
    command = [sys.executable, "-m", "slim_rl.cli", "train", str(config), "--backend", "slime", "--"]
    command += ["--custom-config-path", str(plugin), "--model", str(model), "--save-dir", str(run)]
    environment = cluster.environment | {"PYTHONPATH": str(ROOT), "PYTHON": "python3"}
    done = subprocess.run(
        command, env=environment, cwd=cluster.folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load((run / "config.yaml").read_text())) == {"slim_rl", "tis_mode", "rs_veto_threshold"}


def test_what_would_undo_the_games_reward_is_refused(cluster: Cluster, model: Path, small: Path) -> None:
    assert "overwrite the games' rewards" in one_sentence(dry_run(cluster, "--group-rm", MODEL=model))
    told = one_sentence(dry_run(cluster, "--custom-config-path", small, MODEL=model))
    assert "give it as CONFIG" in told


def test_slimes_own_examples_are_found_unless_the_game_is_ours(cluster: Cluster, model: Path, small: Path) -> None:
    for environment, first in (
        ("slim_rl.games.matching.MatchingEnv", str(cluster.slime)),
        ("examples.secret_number.SecretNumber", str(ROOT)),
    ):
        other = ["--set", "game={}"] if environment.startswith("examples.") else []
        changed = [
            *other,
            "--set",
            f"environment={environment}",
            "--set",
            f"data.train={cluster.folder}/{len(environment)}.jsonl",
        ]
        run = cluster.folder / f"run-{len(environment)}"
        changed += ["--set", "data.eval=null"]
        done = launch(cluster, *changed, MODEL=model, CONFIG=small, EVAL_INTERVAL=0, SAVE_DIR=run)
        assert done.returncode == 0, done.stderr
        variables = json.loads((cluster.folder / "runtime").read_text())["env_vars"]
        assert variables["PYTHONPATH"].split(":")[0] == first


# ------------------------------------------------------------------------------------------------------------ the rest
def test_any_path_survives(cluster: Cluster, model: Path, small: Path) -> None:
    name = "\N{CRAB} \U0001f980 a\u2028b\u0085c [x]: {y} 'z' a\\b"
    folder = cluster.folder / name
    done = launch(cluster, MODEL=model, CONFIG=small, SAVE_DIR=folder, DATA=folder / "games.jsonl")
    assert done.returncode == 0, done.stderr
    config = load_config(folder / "config.yaml")
    assert (config.name, config.data.train) == (name, folder / "games.jsonl")
    assert flags_of(cluster.trained["words"])["--save"] == [str(folder)]


def test_nvlink_is_seen_however_the_topology_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for first, expected in (("GPU0 X NV18 SYS", True), ("GPU0 X PIX SYS", False)):
        # in two writes, with much after the match: a pipe that closes early would lose it
        lines = "".join(f"echo 'GPU1 SYS X NODE {index}'\n" for index in range(2000))
        command.write_text(f"#!/bin/sh\nprintf '{first}'\nsleep 0.05\necho\n{lines}")
        command.chmod(0o755)
        assert has_nvlink() is expected
    command.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not has_nvlink()


def test_proxies_and_sglangs_variables_reach_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = {"https_proxy": "a", "HTTPS_PROXY": "b", "NO_PROXY": "c", "SGLANG_X": "d", "NCCL_NVLS_ENABLE": "0"}
    for name, value in passed.items():
        monkeypatch.setenv(name, value)
    variables = runtime_environment([Path("/slime")], nvlink=True)["env_vars"]
    assert passed.items() <= variables.items()
    assert variables["PYTHONPATH"].split(":")[0] == "/slime"


# --------------------------------------------------------------------------------------------- what would have no effect
def test_what_would_have_no_effect_is_refused(cluster: Cluster, model: Path, tmp_path: Path) -> None:
    config, plugin = tmp_path / "beside.yaml", tmp_path / "plugin.yaml"
    config.write_text(yaml.safe_dump({"slim_rl": SMALL, "train": {"steps": 7}}))
    plugin.write_text("limits: {turn_tokens: 9}\n")
    told = one_sentence(dry_run(cluster, MODEL=model, CONFIG=config))
    assert f"{config}: 'train' stands beside 'slim_rl', where it has no effect" in told
    told = one_sentence(dry_run(cluster, "--custom-config-path", plugin, MODEL=model))
    assert f"{plugin}: 'limits' stands beside 'slim_rl'" in told
    told = one_sentence(dry_run(cluster, "--set", "train.lora.r=4", MODEL=model))
    assert "train.lora is set, but slime trains all weights" in told
    explores = ("--set", "train.exploring_starts=0.5")
    for sampling in ("policy.top_p=0.9", "policy.temperature=0.7"):
        told = one_sentence(dry_run(cluster, *explores, "--set", sampling, MODEL=model))
        assert "set policy.temperature and policy.top_p to 1" in told
    told = one_sentence(dry_run(cluster, *explores, "--rollout-temperature", "0.7", MODEL=model))
    assert "leave --rollout-temperature out" in told


def test_a_config_of_verls_is_checked_as_slimes(cluster: Cluster, model: Path) -> None:
    """Its critic's groups of one have nothing to be compared with on slime, however the launch is started."""
    told = one_sentence(dry_run(cluster, MODEL=model, CONFIG=ROOT / "configs" / "verl_ppo.yaml"))
    assert "train.group_size is 1, but GRPO compares a game's dialogues with each other" in told


def test_selfplay_cannot_be_partial(cluster: Cluster, model: Path) -> None:
    told = one_sentence(dry_run(cluster, "--partial-rollout", MODEL=model))
    assert "a dialogue that slime calls off is played again from its first turn; leave it out" in told


def test_a_file_of_which_no_games_are_asked_for_is_not_evaluated(cluster: Cluster, model: Path, small: Path) -> None:
    flags = flags_of(command_of(dry_run(cluster, "--set", "data.num_eval=0", MODEL=model, CONFIG=small)))
    assert "--eval-prompt-data" not in flags and "--eval-interval" not in flags
    own = ("--eval-prompt-data", "other", "other.jsonl", "--eval-interval", "3", "--set", "data.num_eval=0")
    flags = flags_of(command_of(dry_run(cluster, *own, MODEL=model, CONFIG=small)))
    assert (flags["--eval-prompt-data"], flags["--eval-interval"]) == (["other", "other.jsonl"], ["3"])


def test_folder_with_invalid_run_name_is_refused(cluster: Cluster, model: Path) -> None:
    for name in (".hidden", "run "):
        told = one_sentence(dry_run(cluster, MODEL=model, SAVE_DIR=cluster.folder / name))
        assert "SAVE_DIR" in told and "names the run's folder: a plain name" in told


def test_a_folder_that_cannot_be_made_is_one_sentence(cluster: Cluster, model: Path, small: Path) -> None:
    (cluster.folder / "file").touch()
    told = one_sentence(launch_here(cluster, MODEL=model, CONFIG=small, SAVE_DIR=cluster.folder / "file" / "run"))
    assert str(cluster.folder / "file") in told
