"""`slim-rl train --backend verl`, up to where verl's own program starts: what is looked at first, and what it is given."""

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

SHY: dict[str, Any] = {"kind": "shy"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, without a GPU and a key, with a Ray cluster elsewhere, and a Python that does nothing."""
    for name, value in {"CUDA_VISIBLE_DEVICES": "", "RAY_ADDRESS": "http://head:8265"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").write_text("#!/bin/sh\necho started >> started\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


def starts(partner: dict[str, Any] = SHY) -> bool:
    """Whether verl is started with nothing but the partner said, and a small file of games."""
    path, started = Path("small.yaml"), Path("started")
    started.unlink(missing_ok=True)
    config = {"name": "r", "train": {"backend": "verl"}, "data": {"train": "games.jsonl", "num_train": 64}}
    path.write_text(yaml.safe_dump({"slim_rl": config | {"partner": partner}}))
    backends.start(Request(path, (), load_config(path)))
    return started.exists()


@pytest.mark.parametrize(
    ("openai", "says"),
    [
        ({"cassette": "none.sqlite", "cassette_mode": "replay"}, "The cassette {folder}/none.sqlite does not exist"),
        ({"prompt": "none.md"}, "prompt {folder}/none.md: No such file"),
        (None, "this machine has no GPU, and verl trains on GPUs only"),
    ],
)
def test_verl_invalid_partner_or_machine_starts_nothing(
    tmp_path: Path, openai: dict[str, Any] | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if openai is None:
        monkeypatch.delenv("RAY_ADDRESS")
    with pytest.raises(SlimError) as said:
        starts({"kind": "openai", "openai": openai} if openai else SHY)
    assert says.format(folder=tmp_path) in str(said.value)
    assert not Path("runs").exists() and not Path("started").exists()


def test_verl_is_given_a_config_that_another_folder_can_read(tmp_path: Path) -> None:
    assert starts({"kind": "openai", "openai": {"cassette": "answers.sqlite"}})
    assert Path("started").read_text() == "started\n"
    config = load_config(Path("runs/r/config.yaml"))
    assert config.data.train == tmp_path / "games.jsonl"
    assert config.partner.openai.cassette == tmp_path / "answers.sqlite"
    assert config.partner.openai.base_url is None, "the key is the cluster's own"


def test_verl_resume_needs_same_config_one_launch_and_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert starts()
    folder, checkpoints = Path("runs/r"), Path("runs/r/checkpoints")
    before = (folder / "config.yaml").read_bytes()
    with pytest.raises(SlimError, match=r"began with other values of partner\.kind; give this one another name"):
        starts({"kind": "mute"})
    with FileLock(folder / ".slim-rl-run.lock"), pytest.raises(SlimError, match="is in use by process"):
        starts()
    assert (folder / "config.yaml").read_bytes() == before and not Path("started").exists()
    checkpoints.mkdir()
    for step, words in (("149", "r resumes from step 149 of 150"), ("150", "r is trained")):
        (checkpoints / "latest_checkpointed_iteration.txt").write_text(step)
        capsys.readouterr()
        assert starts() == (step == "149") and words in capsys.readouterr().err


def test_a_signal_ends_verl_too() -> None:
    Path("python").write_text("#!/bin/sh\necho $$ > started\nkill -TERM $PPID\nexec sleep 600\n")

    def unnoticed(number: int, frame: object) -> None:
        raise InterruptedError(number)

    with handled_by(unnoticed), pytest.raises(SystemExit) as ended:
        starts()
    verl = Path("started").read_text().strip()
    assert ended.value.code == 128 + signal.SIGTERM and not Path("/proc", verl).exists()
