"""The example games as a user's own: they import from slim_rl only the names that it exports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import slim_rl
from tests.paths import ROOT

GAMES = ("secret_number.py", "treasure.py", "lying_partner.py", "guess_who")


def imported(path: Path) -> set[str]:
    """The names that a file imports from slim_rl; a module of it by its dotted path."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "slim_rl":
            found |= {alias.name for alias in node.names} if node.module == "slim_rl" else {str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "slim_rl"}
    return found


@pytest.mark.parametrize("name", GAMES)
def test_example_games_import_only_public_names(name: str) -> None:
    path = ROOT / "examples" / name
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    names = set[str]().union(*map(imported, files))
    assert names and names <= set(slim_rl.__all__)


def test_package_imports_no_example() -> None:
    sources = [path.read_text() for path in (ROOT / "slim_rl").rglob("*.py")]
    assert not [text for text in sources if "import examples" in text or "from examples" in text]


def test_a_game_needs_neither_torch_nor_analysis() -> None:
    code = "import sys, examples.guess_who; print(sorted({'torch', 'transformers', 'pandas'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
