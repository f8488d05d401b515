"""A training key is added by its field alone, which says what it means and what the trainers call it. Then both written files and the dry
runs of all backends have it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

FIELD = """    top_k: Annotated[
        int, named("--rollout-top-k", {"top_k": lambda number: max(number, 0)}, f"{ROLLOUT}.top_k")
    ] = -1
    \'\'\'sample among so many of the likeliest tokens; -1: all of them\'\'\'
"""
EDITS = {"slim_rl/config/sections.py": ("    top_p: Annotated[float, ", FIELD)}
DRY = """
import json
from slim_rl.backends.verl.settings import settings
from slim_rl.config import parse_config
from slim_rl.config.trainers import values

config = parse_config({}, ["policy.top_k=40"])
print(json.dumps({"slime": values(config, "slime"), "trl": values(config, "trl"), "verl": settings(config)}))
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the key."""
    folder = tmp_path_factory.mktemp("key")
    shutil.copytree(ROOT / "slim_rl", folder / "slim_rl", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, added) in EDITS.items():
        text = (folder / name).read_text(encoding="utf-8")
        assert text.count(before) == 1, name
        (folder / name).write_text(text.replace(before, added + before), encoding="utf-8")
    return folder


def run(folder: Path, *words: str) -> str:
    env = os.environ | {
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'tools'}",
        "NUM_GPUS": "8",
        "OPENAI_API_KEY": "sk-fake",
    }
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_written_files_have_it(copied: Path) -> None:
    run(copied, "-m", "reference_pages")
    page, recipe = (
        (copied / path).read_text(encoding="utf-8") for path in ("docs/reference/config.md", "configs/matching.yaml")
    )
    told = "sample among so many of the likeliest tokens"
    entry = page.partition("\n### `policy.top_k`\n")[2].partition("\n### ")[0]
    assert told in entry
    assert "- slime: `--rollout-top-k`\n- TRL: `top_k`\n- verl: `actor_rollout_ref.rollout.top_k`\n" in entry
    assert f"  top_k: -1                    # {told}; -1: all of them [--rollout-top-k]" in recipe


def test_every_dry_run_has_it(copied: Path) -> None:
    found: dict[str, Any] = json.loads(run(copied, "-c", DRY))
    assert found["verl"]["actor_rollout_ref.rollout.top_k"] == found["trl"]["top_k"] == 40
    assert found["slime"]["--rollout-top-k"] == 40
    trl = pytest.importorskip("trl")
    assert trl.GRPOConfig(**found["trl"], output_dir=str(copied), use_cpu=True, bf16=False).top_k == 40
