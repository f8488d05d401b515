"""scripts/run_matching.sh on a node of fakes: how tests start it, and what its command says."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from slim_rl.backends.slime.launch import main
from slim_rl.backends.slime.layout import parse_flags
from tests.fakes.cluster import Cluster, write_model
from tests.paths import ROOT

REPOSITORY = ROOT
SCRIPT = REPOSITORY / "scripts" / "run_matching.sh"
SMALL = {
    "name": "small",
    "game": {"n": 3},
    "data": {"train": "games.jsonl", "eval": "eval.jsonl", "num_train": 6, "num_eval": 2},
    "train": {"steps": 3, "games_per_step": 2, "group_size": 2, "learning_rate": 1e-6},
    "log": {"dir": "dialogues"},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster.build(tmp_path / "node")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "models", "Qwen3-0.6B")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({"slim_rl": SMALL}))
    return path


def launch(cluster: Cluster, *words: object, **variables: object) -> subprocess.CompletedProcess[str]:
    environment = cluster.environment | {key: str(value) for key, value in variables.items()}
    command = ["bash", str(SCRIPT), *map(str, words)]
    return subprocess.run(
        command, env=environment, cwd=cluster.folder, capture_output=True, text=True, timeout=240, check=False
    )


def dry_run(cluster: Cluster, *words: object, **variables: object) -> subprocess.CompletedProcess[str]:
    """What `launch_here` gives with --dry-run."""
    return launch_here(cluster, *words, "--dry-run", **variables)


def launch_here(cluster: Cluster, *words: object, **variables: object) -> subprocess.CompletedProcess[str]:
    """What `launch` gives, without its seconds of starting: the script's launcher, in this process."""
    set_by_the_script = {"PYTHON": "python3", "CONFIG": str(ROOT / "configs" / "matching.yaml")}
    environment = cluster.environment | set_by_the_script | {key: str(value) for key, value in variables.items()}
    command, out, err = [*map(str, words)], io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, environment, clear=True),
        contextlib.chdir(cluster.folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(command)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def command_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The words of a dry run's command."""
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout.replace("\\\n", " "))


def flags_of(words: list[str]) -> dict[str, list[str]]:
    """flag -> values, with no flag standing twice."""
    repeated = [flag for flag, times in Counter(word for word in words if word.startswith("--")).items() if times > 1]
    assert not repeated
    return parse_flags([word for word in words if not word.endswith((".py", "python3", "-m", "slime.driver"))])
