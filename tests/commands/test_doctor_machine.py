"""`slim-rl doctor` on the machine: GPUs, disks, trackers, the hub, and what slime makes of it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slim_rl.backends.checks import Check, examine
from slim_rl.backends.slime.doctor import check_launch
from slim_rl.config import Config
from tests.commands.doctor_setup import config, doctor, policy
from tests.fakes.cluster import Cluster, write_model
from tests.paths import ROOT

__all__ = ["config", "policy"]  # fixtures


def on_path(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    monkeypatch.setenv("PATH", cluster.environment["PATH"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_gpus_are_counted_and_those_in_use_told(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(Cluster.build(tmp_path / "node"), monkeypatch)
    assert doctor(tmp_path, config)["GPUs"] == Check("GPUs", "pass", "4 × NVIDIA H100 80GB HBM3, 80 GiB")
    assert doctor(tmp_path, config | {"verl": {"gpus": 8}}, "verl")["GPUs"].fix == "Set verl.gpus=4."
    monkeypatch.setenv("NUM_GPUS", "8")
    wanted = doctor(tmp_path, config, backend="slime")["GPUs"]
    assert (wanted.status, wanted.fix) == ("fail", "Set NUM_GPUS=4.")
    assert doctor(tmp_path, config)["GPUs"].status == "pass", "it is a setting of slime's launch"
    monkeypatch.setenv("NUM_GPUS", "many")
    wrong = doctor(tmp_path, config, backend="slime")["GPUs"]
    assert wrong == Check("GPUs", "fail", "NUM_GPUS is 'many'; it must be a whole number of at least 1.")
    monkeypatch.delenv("NUM_GPUS")
    monkeypatch.setenv("USED", "60000")
    busy = doctor(tmp_path, config)["GPUs"]
    assert busy.status == "warn" and "4 in use" in busy.finding


def test_cluster_backends_fail_without_a_gpu(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    check = doctor(tmp_path, config, backend="slime")["GPUs"]
    assert check.status == "fail" and "make run" in check.fix
    assert doctor(tmp_path, config)["GPUs"].status == "pass", "a tiny model trains on a CPU"


def test_disk_too_small_for_the_checkpoints(tmp_path: Path, config: dict[str, Any]) -> None:
    huge = write_model(tmp_path / "huge", "Qwen3-32B", num_hidden_layers=10**6)
    check = doctor(tmp_path, config | {"policy": {"model": str(huge)}})["disk"]
    assert check.status == "fail" and "SAVE_DIR" in check.fix


def test_a_run_whose_checkpoints_outgrow_the_disk_is_warned_of(tmp_path: Path, config: dict[str, Any]) -> None:
    train = {"steps": 10**12, "save_every": 1}
    check = doctor(tmp_path, config | {"train": train}, backend="slime")["disk"]
    assert check.status == "warn" and "save_every" in check.fix
    for backend in ("trl", "verl"):  # which keep the newest alone
        few = doctor(tmp_path, config | {"train": train | {"keep_checkpoints": 3}}, backend=backend)["disk"]
        assert few.status == "pass" and "; 3 checkpoints take" in few.finding


def test_the_disk_is_that_of_the_folder_slime_saves_in(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("SAVE_DIR", str(elsewhere / "run"))
    assert f"free in {elsewhere};" in doctor(tmp_path, config, backend="slime")["disk"].finding
    assert f"free in {tmp_path};" in doctor(tmp_path, config)["disk"].finding, "a setting of slime's launch alone"


def test_a_tracker_without_its_key_fails(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    tracked = config | {"train": {"report_to": ["wandb"]}}
    assert "W&B" not in doctor(tmp_path, config)
    check = doctor(tmp_path, tracked)["W&B"]
    assert check.status == "fail" and "WANDB_API_KEY" in check.fix
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password abc")
    (tmp_path / ".netrc").chmod(0o600)
    assert doctor(tmp_path, tracked)["W&B"].status == "pass"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert doctor(tmp_path, tracked)["W&B"].status == "pass"


def test_a_hub_that_does_not_answer_is_given_up_in_seconds(tmp_path: Path, config: dict[str, Any]) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections and says nothing
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config | {"policy": {"model": "nobody/nothing"}}))
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run(
        [sys.executable, "-m", "slim_rl.cli", "doctor", str(path)],
        env=environment | {"HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}", "HF_HOME": str(tmp_path)},
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    silent.setblocking(False)
    tried = 0
    with silent, contextlib.suppress(BlockingIOError):
        while True:
            silent.accept()[0].close()
            tried += 1
    assert tried <= 2, "each waits for seconds"
    assert done.returncode == 1 and "nobody/nothing has no tokenizer" in " ".join(done.stdout.split()), done.stdout


def test_the_routers_build_is_told_by_its_own_version(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """slime's wheel is called 0.3.2, as everybody's is; only the module in it says whose it is."""
    made = tmp_path / "sglang_router-0.3.2.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang_router\nVersion: 0.3.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("ROUTER_POLICY", raising=False)
    for version, status, found in (("0.3.2.slime", "pass", "consistent_hashing"), ("0.3.2", "warn", "its own policy")):
        monkeypatch.setitem(sys.modules, "sglang_router", SimpleNamespace(__version__=version))
        checks = doctor(tmp_path, config, "slime")
        assert (checks["router"].status, checks["router"].finding) == (status, found)
        assert checks["sglang_router"] == Check("sglang_router", "pass", "0.3.2")


def test_model_is_held_against_slimes_scripts_and_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster.build(tmp_path / "node")
    on_path(cluster, monkeypatch, SLIME_DIR=str(cluster.slime))

    def look(name: str, **changes: Any) -> Check:
        model = write_model(tmp_path / str(changes), name, **changes)
        config = Config.model_validate({"policy": {"model": str(model)}, "train": {"backend": "slime"}})
        return examine(config, {"model": check_launch})[0]

    assert look("Qwen3-4B").status == "pass"
    assert look("Qwen3-4B").finding == "Qwen3-4B, 4.0B parameters: about 49 GiB on each of 4 GPUs (TP=1)"
    large = look("Qwen3-32B")
    assert large.status == "warn" and "raise TP" in large.fix
    (cluster.slime / "scripts" / "models" / "qwen3-4B.sh").unlink()
    unknown = look("Qwen3-4B")
    assert unknown.status == "fail" and "Set MODEL_SCRIPT" in unknown.finding


def test_slime_that_is_not_there_is_said_once(tmp_path: Path, config: dict[str, Any]) -> None:
    if "slime" in __import__("sys").modules or os.environ.get("SLIME_DIR"):
        pytest.skip("slime is here")
    checks = doctor(tmp_path, config, backend="slime")
    assert checks["slime"].status == "fail"
    assert checks["hooks"] == Check("hooks", "fail", "cannot be loaded without slime", "Fix the checks above first.")
