"""The quick start of docs/reference/python-api.md runs as it stands, the commands of README and guides are there, and `slim_rl`'s names, without their
weight."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import slim_rl
from tests.paths import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
HEAVY = {"datasets", "openai", "torch", "transformers", "trl", "verl"}


def python(code: str, folder: Path) -> str:
    """What a program prints, in a separate process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def programs() -> list[str]:
    """The quick start of docs/reference/python-api.md, and its program that trains."""
    return re.findall(
        r"^```python\n(.*?)^```",
        (ROOT / "docs" / "reference" / "python-api.md").read_text(encoding="utf-8"),
        re.M | re.S,
    )


def test_install_command_precedes_first_use() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert ". .venv/bin/activate" in text[: text.index("slim-rl ")]


def test_the_quick_start_runs(tmp_path: Path) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    heavy = f"\nimport sys\nprint(sorted({HEAVY!r} & set(sys.modules)))"
    played, report, loaded = python(programs()[0] + heavy, tmp_path).splitlines()
    results = ast.literal_eval(played)
    assert len(results) == 3 and all(0 <= reward <= 1 for reward, _ in results)
    assert "<!doctype html>" in (tmp_path / report).read_text(encoding="utf-8")
    assert len((tmp_path / "logs" / "quickstart" / "games.jsonl").read_text().splitlines()) == 50
    assert loaded == "[]"


def test_program_that_trains_runs(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    (tmp_path / "data").mkdir()
    for name in ("configs", "data/warmstart"):  # not data/local, where the program writes its games
        (tmp_path / name).symlink_to(ROOT / name)
    *_, replies, last = python(programs()[1], tmp_path).splitlines()
    assert len(ast.literal_eval(replies)) == 2 and last.endswith(" 3")
    assert (tmp_path / "runs" / "small" / "model" / "config.json").exists()


def test_the_quick_start_has_ten_lines() -> None:
    assert sum(bool(line) for line in programs()[0].splitlines()) <= 10


def test_importing_slim_rl_imports_nothing_of_it(tmp_path: Path) -> None:
    code = "import sys, slim_rl; print([m for m in sys.modules if m.startswith('slim_rl.') or m in ('numpy', 'yaml')])"
    assert python(code, tmp_path).strip() == "[]"


def test_every_name_is_there_and_typed() -> None:
    tree = ast.parse((ROOT / "slim_rl" / "__init__.pyi").read_text(encoding="utf-8"))
    imported = {
        alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert sorted(imported) == slim_rl.__all__
    for name, module in imported.items():
        value = getattr(slim_rl, name)
        assert value is getattr(sys.modules[str(module)], name)
    assert set(slim_rl.__all__) <= set(dir(slim_rl))


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reviewer'"):
        _ = slim_rl.reviewer  # type: ignore[attr-defined]


def test_pictures_say_what_they_show_and_tables_have_heads() -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M | re.S)
    alts = re.findall(r"!\[([^\]]*)\]\(", text)
    assert alts and all(len(alt.split()) >= 5 for alt in alts)
    heads = re.findall(r"^(\|.*\|)\n\|[-:|]+\|$", text, re.M)
    assert heads and all(cell.strip() for head in heads for cell in head.strip("|").split("|"))


def test_readme_has_at_most_110_lines_one_picture_and_the_hook() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 110
    assert len(re.findall(r"!\[", text)) == 1
    screen = text[: text.index("## What we found")]
    for wanted in (
        "--custom-generate-function-path slim_rl.rollout.generate",
        "624b824",
        "v0.3.1",
        "GPU",
        "make run",
        "make test",
    ):
        assert wanted in screen


@pytest.mark.parametrize(("walk", "number"), [("From a row to a sample", 11), ("From a config key to a slime flag", 7)])
def test_walk_names_its_files_once_and_is_short(walk: str, number: int) -> None:
    text = (ROOT / "docs" / "explanation" / "from-game-to-gradient.md").read_text(encoding="utf-8")
    files = re.findall(r"^\d+\. `([\w/.]+)`", text.partition(f"## {walk}\n")[2].partition("\n## ")[0], re.M)
    assert len(set(files)) == len(files) == number
