"""`slim-rl train --backend verl`, up to where verl's own program starts: what is looked at first, and what it is given."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from filelock import FileLock

pytest.importorskip("verl")
from slim_rl import backends
from slim_rl.backends import Request
from slim_rl.config import load_config
from slim_rl.errors import SlimError
from slim_rl.processes import handled_by

NO_CASSETTE = {"kind": "openai", "openai": {"cassette": "none.sqlite", "cassette_mode": "replay"}}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, without a GPU and a key, with a Ray cluster elsewhere, and a Python that does nothing."""
    for name, value in {"CUDA_VISIBLE_DEVICES": "", "RAY_ADDRESS": "http://head:8265"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho started >> started\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))


def start(folder: Path, partner: dict[str, Any]) -> None:
    """A start with nothing but the partner said, and a small file of games."""
    path = folder / "small.yaml"
    data = {"train": "games.jsonl", "num_train": 64}
    path.write_text(
        yaml.safe_dump({"slim_rl": {"name": "r", "train": {"backend": "verl"}, "data": data, "partner": partner}})
    )
    backends.start(Request(path, (), load_config(path)))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("partner", "says"),
    [
        (NO_CASSETTE, "The cassette {folder}/none.sqlite does not exist"),
        ({"kind": "yoked", "args": {"replay": "none"}}, "There is no dialogue log {folder}/none"),
        ({"kind": "openai", "openai": {"prompt": "none.md"}}, "prompt {folder}/none.md: No such file"),
    ],
)
def test_verl_invalid_partner_is_refused_before_launch(tmp_path: Path, partner: dict[str, Any], says: str) -> None:
    with pytest.raises(SlimError) as said:
        start(tmp_path, partner)
    assert says.format(folder=tmp_path) in str(said.value)
    assert not (tmp_path / "runs").exists() and not (tmp_path / "started").exists()


@pytest.mark.usefixtures("elsewhere")
def test_a_machine_without_a_gpu_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS")
    with pytest.raises(SlimError, match="this machine has no GPU, and verl trains on GPUs only"):
        start(tmp_path, {"kind": "shy"})
    assert not (tmp_path / "runs").exists() and not (tmp_path / "started").exists()


@pytest.mark.usefixtures("elsewhere")
def test_verl_is_given_a_config_that_another_folder_can_read(tmp_path: Path) -> None:
    start(tmp_path, {"kind": "openai", "openai": {"cassette": "answers.sqlite"}})
    assert (tmp_path / "started").read_text() == "started\n"
    config = load_config(tmp_path / "runs" / "r" / "config.yaml")
    assert config.data.train == tmp_path / "games.jsonl"
    assert config.partner.openai.cassette == tmp_path / "answers.sqlite"
    assert config.partner.openai.base_url is None, "the key is the cluster's own"


@pytest.mark.usefixtures("elsewhere")
def test_verl_resume_needs_same_config_and_one_launch(tmp_path: Path) -> None:
    start(tmp_path, {"kind": "shy"})
    (tmp_path / "started").unlink()
    folder = tmp_path / "runs" / "r"
    before = (folder / "config.yaml").read_bytes()
    with pytest.raises(SlimError, match=r"began with other values of partner\.kind; give this one another name"):
        start(tmp_path, {"kind": "mute"})
    with FileLock(folder / ".slim-rl-run.lock"), pytest.raises(SlimError, match="is in use by process"):
        start(tmp_path, {"kind": "shy"})
    assert (folder / "config.yaml").read_bytes() == before and not (tmp_path / "started").exists()
    start(tmp_path, {"kind": "shy"})
    assert (tmp_path / "started").exists()


@pytest.mark.usefixtures("elsewhere")
def test_a_signal_ends_verl_too(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho $$ > started\nkill -TERM $PPID\nexec sleep 600\n")

    def unnoticed(number: int, frame: object) -> None:
        raise InterruptedError(number)

    with handled_by(unnoticed), pytest.raises(SystemExit) as ended:
        start(tmp_path, {"kind": "shy"})
    verl = (tmp_path / "started").read_text().strip()
    assert ended.value.code == 128 + signal.SIGTERM and not Path("/proc", verl).exists()


@pytest.mark.usefixtures("elsewhere")
def test_a_trained_run_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(tmp_path, {"kind": "shy"})  # writes the run's folder
    (tmp_path / "started").unlink()
    checkpoints = tmp_path / "runs" / "r" / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "latest_checkpointed_iteration.txt").write_text("150")
    start(tmp_path, {"kind": "shy"})
    said = capsys.readouterr().err
    assert "r is trained" in said and "goes on" not in said and not (tmp_path / "started").exists()
    (checkpoints / "latest_checkpointed_iteration.txt").write_text("149")
    start(tmp_path, {"kind": "shy"})
    assert "r resumes from step 149 of 150" in capsys.readouterr().err
    assert (tmp_path / "started").exists()
