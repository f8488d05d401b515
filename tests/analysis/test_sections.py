"""Sections of the report: registered by others, iterated by the report, known to neither."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slim_rl.analysis import analyze, sections
from slim_rl.analysis.load import Log
from slim_rl.analysis.tables import Table, number, prose


def test_a_registered_section_is_in_report_and_summary(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unprinted: None
) -> None:
    monkeypatch.setattr(sections, "SECTIONS", [])

    @sections.register
    def dialogues_per_arm(log: Log, price: float) -> sections.Section:
        rows = [{"arm": arm, "dialogues": len(part)} for arm, part in log.frame.groupby("arm", observed=True)]
        table = Table("How many there are.", [prose("arm"), number("dialogues")], rows)
        return sections.Section("Dialogues per arm", {"per_arm": rows, "at": price}, [table])

    summary = analyze([log_dir], tmp_path, max_dialogues=0, price=0.5)
    page = summary.report.read_text(encoding="utf-8")
    assert "<summary>Dialogues per arm</summary>" in page and "How many there are." in page
    assert [row["arm"] for row in summary.results["per_arm"]] == summary.results["arms"]
    assert summary.results["at"] == 0.5 and "ledger" not in summary.results


def test_the_analysis_alone_loads_nothing_of_the_lab() -> None:
    code = "import sys, slim_rl.analysis.report, slim_rl.analysis.live, slim_rl.analysis.terminal_tables\n"
    code += "print([name for name in sys.modules if name.startswith('slim_rl.lab.') and 'gap' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
