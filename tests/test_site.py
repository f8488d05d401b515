"""The site has every page that the documentation links to, and is not built with a link to nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import slim_rl
from tests.paths import ROOT

pytest.importorskip("mkdocs")


def build(root: Path, **pages: str) -> subprocess.CompletedProcess[str]:
    """Builds a site of these pages by the project's own settings, its navigation left out."""
    (root / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "hooks.py", root / "docs")
    shutil.copytree(ROOT / "docs" / "assets", root / "docs" / "assets")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (root / "mkdocs.yml").write_text(re.sub(r"^nav:\n.*", "", settings, flags=re.M | re.S))
    for name in ("README.md", "SECURITY.md", "CHANGELOG.md"):
        (root / name).write_text("# Here\n")
    (root / "code.py").write_text("print()\n")
    for name, text in pages.items():
        (root / "docs" / f"{name}.md").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=root, capture_output=True, text=True
    )


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    wrong = ["none.md", "two.md#nowhere", "../none.py", "img/none.png"]
    built = build(tmp_path, one="".join(f"[a]({link})\n\n" for link in wrong), two="# Two\n")
    assert built.returncode != 0
    for link in wrong:
        assert f"'{link}'" in built.stderr


def test_every_link_target_exists_in_the_repository(tmp_path: Path) -> None:
    built = build(tmp_path, one="[a](two.md#three) [b](../code.py) [c](../README.md)\n", two="# Two\n\n## Three\n")
    assert built.returncode == 0, built.stderr
    site = tmp_path / "build" / "site"
    page = (site / "docs" / "one.html").read_text(encoding="utf-8")
    for link in ("two.html#three", "../code.py", "../index.html"):
        assert f'href="{link}"' in page
        assert (site / "docs" / link.partition("#")[0]).is_file()
    scripts = re.findall(r'<script src="([^"]+)"', page)
    assert all((site / "docs" / script).is_file() for script in scripts)
    assert any("iframe-worker" in script for script in scripts), "search needs it where the page is opened from disk"
    assert "three" in (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert not re.search(r'(<script[^>]*src|<link[^>]*stylesheet[^>]*href)="(https?:)?//', page), (
        "no asset from elsewhere"
    )


def test_the_pages_of_python_have_every_public_name() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("python-*.md"))
    assert sorted(re.findall(r"^::: slim_rl\.(\w+)$", text, re.M)) == slim_rl.__all__
