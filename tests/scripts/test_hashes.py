"""pip's own report becomes requirements that pip itself takes by their hashes, and nothing else."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT


def wheel(folder: Path, content: str) -> Path:
    path = folder / "tiny_thing-1.0-py3-none-any.whl"
    files = {
        "tiny_thing.py": content,
        "tiny_thing-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n",
        "tiny_thing-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tiny_thing-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def pip(*words: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--isolated",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--dry-run",
    ]
    more = ["--ignore-installed", "--no-deps", "--no-index", *words]
    return subprocess.run([*command, *more], capture_output=True, text=True, check=False)


def test_what_is_written_is_taken_and_another_file_refused(tmp_path: Path) -> None:
    if pip("--help").returncode:
        pytest.skip("there is no pip here")
    made = wheel(tmp_path, "one = 1\n")
    (tmp_path / "constraints.txt").write_text("tiny-thing==1.0\n")
    found = ["--find-links", str(tmp_path)]
    reported = pip(*found, "--report", str(tmp_path / "report.json"), "-r", str(tmp_path / "constraints.txt"))
    assert reported.returncode == 0, reported.stderr
    report = (tmp_path / "report.json").read_text()
    script = [sys.executable, str(ROOT / "scripts" / "hashes.py")]
    hashed = subprocess.run(script, input=report, capture_output=True, text=True, check=True).stdout
    assert hashed == f"tiny-thing==1.0 --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}\n"
    (tmp_path / "requirements.hashed").write_text(hashed)
    by_hash = [*found, "--require-hashes", "-r", str(tmp_path / "requirements.hashed")]
    assert pip(*by_hash).returncode == 0
    wheel(tmp_path, "one = 2\n")
    assert "DO NOT MATCH THE HASHES" in pip(*by_hash).stderr


def test_a_file_without_a_hash_is_named() -> None:
    report = {
        "install": [
            {"metadata": {"name": "local", "version": "1"}, "download_info": {"url": "file:///x", "dir_info": {}}}
        ]
    }
    script = [sys.executable, str(ROOT / "scripts" / "hashes.py")]
    done = subprocess.run(script, input=json.dumps(report), capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no hash of local" in done.stderr and "Traceback" not in done.stderr
