"""scripts/run_matching.sh on a node of fakes: how tests start it, and what its command says."""

import contextlib
import os
import shlex
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from slim_rl.backends.slime.flags import parse_flags
from tests.commands.shell import call
from tests.fakes.cluster import Cluster, write_model
from tests.paths import ROOT

REPOSITORY = ROOT
SCRIPT = REPOSITORY / "scripts" / "run_matching.sh"
GIVEN = ("--actor-num-nodes", "1", "--actor-num-gpus-per-node", "4")
SMALL = {
    "name": "small",
    "game": {"n": 3},
    "data": {"train": "games.jsonl", "eval": "eval.jsonl", "num_train": 6, "num_eval": 2},
    "train": {"steps": 3, "games_per_step": 2, "group_size": 2, "learning_rate": 1e-6},
}


# Stands for a Python that finds no slime, prints one flag, and trains for JOB_SECONDS: what is left is the script's own part.
_NO_PYTHON = """#!/bin/sh
case "$*" in
*--print-flags*--dry-run*) echo "--seed 0" ;;
*--print-flags*) mkdir -p "$SAVE_DIR" && echo "--seed 0" ;;
*slime.job*) echo ;;
*slime.driver*) touch "$CLUSTER/trained" && exec sleep "${JOB_SECONDS:-0}" ;;
esac
"""


def without_python(cluster: Cluster, model: object = "a/Qwen3-4B") -> Cluster:
    """Returns the node with a stand-in for the script's Python."""
    python = cluster.folder / "bin" / "python"
    python.write_text(_NO_PYTHON)
    python.chmod(0o755)
    return Cluster(cluster.folder, cluster.slime, cluster.environment | {"PYTHON": str(python), "MODEL": str(model)})


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster.build(tmp_path / "node")


@pytest.fixture
def alone(cluster: Cluster) -> Cluster:
    """A node on which the script runs without its Python."""
    return without_python(cluster)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "models", "Qwen3-0.6B")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({"slim_rl": SMALL}))
    return path


def launch(cluster: Cluster, *words: object, **variables: object) -> subprocess.CompletedProcess[str]:
    """Runs the script."""
    environment = cluster.environment | {key: str(value) for key, value in variables.items()}
    command = ["bash", str(SCRIPT), *map(str, words)]
    return subprocess.run(
        command, env=environment, cwd=cluster.folder, capture_output=True, text=True, timeout=240, check=False
    )


def dry_run(cluster: Cluster, *words: object, **variables: object) -> subprocess.CompletedProcess[str]:
    """Runs the script with --dry-run."""
    return launch(cluster, *words, "--dry-run", **variables)


def print_flags(
    cluster: Cluster, *words: object, given: Sequence[str] = GIVEN, dry: bool = True, **variables: object
) -> subprocess.CompletedProcess[str]:
    """Runs what the script asks for its config's flags, in this process.

    Args:
        words: `--set=key=value`.
        given: flags of the script and of the user.
    """
    variables = {"CONFIG": ROOT / "configs" / "matching.yaml", "SAVE_DIR": cluster.folder / "run"} | variables
    environment = cluster.environment | {key: str(value) for key, value in variables.items()}
    command = ["train", environment["CONFIG"], "--backend", "slime", "--print-flags", *["--dry-run"] * dry]
    with patch.dict(os.environ, environment, clear=True), contextlib.chdir(cluster.folder):
        return call(*command, *words, "--", *given)


def printed(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """The flags that were printed."""
    assert done.returncode == 0, done.stderr
    return parse_flags([word for line in done.stdout.splitlines() for word in shlex.split(line)])


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The message of a refusal."""
    assert done.returncode == 1, done.stdout
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def command_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The words of a dry run's command."""
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout.replace("\\\n", " "), comments=True)


def flags_of(words: list[str]) -> dict[str, list[str]]:
    """flag -> values, with no flag standing twice."""
    assert not [flag for flag, times in Counter(word for word in words if word.startswith("--")).items() if times > 1]
    return parse_flags(words)
