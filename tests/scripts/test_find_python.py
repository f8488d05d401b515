"""The scripts run outside of the environment that `make` set up: they find it, or say what to install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.cluster import write_model
from tests.paths import ROOT

SCRIPTS = ["run_matching.sh", "smoke_cluster.sh", "run_verl_ppo.sh", "run_verl_selfplay.sh"]


def bare(folder: Path) -> Path:
    """A Python without any packages but its own."""
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    python.chmod(0o755)
    return python


def checkout(folder: Path) -> Path:
    """A checkout of this project's, without its .venv."""
    folder.mkdir()
    for name in ("slim_rl", "configs", "data"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    (folder / "pyproject.toml").touch()
    return folder


def run(place: Path, script: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(bare(place.parent / "bin")), "/usr/bin", "/bin"])
    path = path.replace("/python3", "")
    own = {"PATH": path, "HOME": str(place), "HF_HUB_OFFLINE": "1", "SMOKE_DIR": str(place / "smoke")}
    return subprocess.run(
        ["bash", str(place / "scripts" / script), *words],
        env=own | variables, cwd=place.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_the_packages_they_say_what_to_install(tmp_path: Path, script: str) -> None:
    done = run(checkout(tmp_path / "here"), script, "--dry-run")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        f"slim-rl: python3 lacks packages that slim_rl needs: python3 -m pip install -e {tmp_path / 'here'}, or set PYTHON to "
        "one that has them.\n"
    )


@pytest.mark.parametrize("script", ["run_matching.sh", "run_verl_ppo.sh"])
def test_the_checkouts_own_environment_is_found(tmp_path: Path, script: str) -> None:
    here = checkout(tmp_path / "here")
    (here / ".venv" / "bin").mkdir(parents=True)
    python = here / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['verl'] = None  # which would check for seconds\n"
    )
    model = str(write_model(tmp_path, "Qwen3-0.6B"))
    done = run(here, script, "--dry-run", MODEL=model, POLICY_MODEL=model, OPENAI_API_KEY="sk-fake")
    assert done.returncode == 0, done.stderr
    assert ("-m slim_rl.backends.slime.driver" if "matching" in script else "-m verl.trainer.main_ppo") in done.stdout
    assert run(here, script, "--dry-run", PYTHON="python3").returncode == 1, "a Python that is named is the one"
