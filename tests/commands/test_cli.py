"""The command line: light to start, one sentence for what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

COMMANDS = ["generate", "train", "arms", "evaluate", "play", "analyze", "audit", "doctor", "warmstart", "convert"]


def slim_rl(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slim_rl.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "module",
    ["slim_rl", "slim_rl.cli", "slim_rl.games.matching", "slim_rl.games.matching.questions", "slim_rl.partners"],
)
def test_the_core_is_light(module) -> None:
    heavy = ("torch", "transformers", "trl", "verl", "slime", "sglang", "openai", "matplotlib", "ray")
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).strip() == "[]"


def test_help_names_every_command() -> None:
    result = slim_rl("--help")
    assert result.returncode == 0
    assert all(f"  {command} " in result.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command) -> None:
    assert slim_rl(command, "--help").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("train", "nowhere.yaml"), "Cannot read the config nowhere.yaml"),
        (("train", "configs/matching_local.yaml", "--set", "game.m=3"), "'game.m' is not a key"),
        (("train", "configs/matching.yaml", "--backend", "slime", "--", "--num-gpus", "0"), "NUM_GPUS is '0'"),
        (("train", "configs/matching_local.yaml", "a=b"), "override for verl"),
        (("arms", "configs/matching_local.yaml", "--seeds", "a"), "whole numbers"),
        (("analyze", "--log-dir", "nowhere"), "nowhere"),
        (("audit", "nowhere"), "nowhere"),
        (("generate",), "--output"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_code_1(arguments, says) -> None:
    result = slim_rl(*arguments)
    assert result.returncode == 1, result.stderr
    assert says in result.stderr and "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_generate_writes_games(tmp_path) -> None:
    output = tmp_path / "games.jsonl"
    result = slim_rl("generate", "--num-games", "3", "--n", "3", "--output", str(output))
    assert result.returncode == 0, result.stderr
    assert len(output.read_text().splitlines()) == 3
    script = ROOT / "scripts" / "generate_data.py"
    again = tmp_path / "again.jsonl"
    subprocess.run([sys.executable, script, "--num_games", "3", "--n", "3", "--output", str(again)], check=True)
    assert again.read_bytes() == output.read_bytes()


def test_arms_can_be_looked_at_first() -> None:
    result = slim_rl("arms", "configs/matching_local.yaml", "--arm", "mute", "--seeds", "0,1", "--dry-run")
    assert result.returncode == 0 and result.stdout.count("partner.kind=") == 2


def test_without_the_local_extra_it_says_what_to_install() -> None:
    # None in sys.modules is how Python remembers that a module is not there
    code = "import sys; sys.modules['torch'] = None; from slim_rl import cli; sys.argv[1:] = ['train', 'configs/matching_local.yaml']; cli.main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 1
    assert "needs torch" in result.stderr
    assert "Traceback" not in result.stderr
