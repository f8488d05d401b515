"""Ctrl-C in the middle of a soak: the log is whole, and the same command plays what is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.paths import ROOT

pytest.importorskip("transformers")


def soak(out: Path, latency: float = 0.05) -> subprocess.Popen[str]:
    command = [sys.executable, "benchmarks/soak_partner.py", "--dialogues", "60", "--concurrency", "8"]
    return subprocess.Popen(
        [*command, "--latency", str(latency), "--fault-rate", "0", "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENAI_API_KEY": ""},
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a background job's children ignore it otherwise
    )


def test_an_interrupted_run_is_whole_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "dialogues.jsonl"
    first = soak(tmp_path, latency=0.4)  # so long that it is not over before it is interrupted, on any machine
    while first.poll() is None and (not log.exists() or log.stat().st_size < 20_000):
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, complaint = first.communicate(timeout=100)
    assert first.returncode == 130 and "Traceback" not in complaint, complaint
    assert complaint.splitlines()[-1] == "Interrupted. The log is complete; run the same command to continue."
    lines = log.read_text().splitlines(keepends=True)
    assert 0 < len(lines) < 60 and all(line.endswith("\n") for line in lines)
    before = [json.loads(line) for line in lines]
    second = soak(tmp_path)
    table, complaint = second.communicate(timeout=200)
    assert second.returncode == 0, complaint
    after = [json.loads(line) for line in log.read_text().splitlines()]
    assert after[: len(before)] == before, "what was done is not done again"
    assert sorted(one["id"] for one in after) == sorted(f"soak-{number}" for number in range(60))
    assert "60 of 60" in table
