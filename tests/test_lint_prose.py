"""The lint of prose: each rule finds its fault, leaves good text alone, and its count may only fall."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.paths import ROOT

SPEC = importlib.util.spec_from_file_location("lint_prose", ROOT / "tools/lint_prose.py")
assert SPEC and SPEC.loader
lint = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(lint)

LONG = "word " * 21


@pytest.mark.parametrize(
    "check, text, rules",
    [
        (lint.in_docstring, "Returns the reward of a dialogue.\n\nArgs:\n    seed: seed of the draw.", []),
        (lint.in_docstring, "What there is of every run.", ["clause or pronoun"]),
        (lint.in_docstring, f"Returns {LONG}", ["over 20 words"]),
        (lint.in_docstring, "Returns rows.\n\nArgs:\n    rows: of the log.", ["Args entry"]),
        (lint.in_docstring, "Returns questions put for the policy.", ["put"]),
        (lint.in_document, f"{LONG} {LONG}.", ["over 25 words"]),
        (lint.in_document, f"- {LONG}\n  - {LONG}\n\n| {LONG} | {LONG} |\n\n```\n{LONG} {LONG}\n```\n", []),
        (lint.in_document, "One; two; three.", ["semicolons"]),
        (lint.in_document, "The run goes on with two questions a game.", ["goes on", "per"]),
        (lint.in_changelog, f"# Changes\n\n- {LONG}\n- {LONG} {LONG}\n", ["bullet"]),
        (lint.in_test, "test_" + "x" * 56, ["test name"]),
        (lint.in_subject, "The key is in the error", ["imperative"]),
        (lint.in_subject, "Name " + "x" * 68, ["72 characters"]),
    ],
)
def test_rules_find_their_faults_alone(check, text: str, rules: list[str]) -> None:
    found = [finding.rule for finding in check(text, "page.md")]
    assert len(found) == len(rules) and all(part in rule for part, rule in zip(rules, found, strict=True)), found


def test_counts_may_only_fall(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "slim_rl").mkdir()
    (tmp_path / "slim_rl/a.py").write_text('"""What one is."""\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n")
    table, rule = tmp_path / "table.json", lint.DOCSTRING_FIRST
    for allowed, arguments, status, kept in ((1, [], 0, 1), (0, [], 1, 0), (3, [], 0, 3), (3, ["--lower"], 0, 1)):
        table.write_text(json.dumps({rule: allowed}))
        assert lint.main(arguments, tmp_path, table) == status and json.loads(table.read_text()) == {rule: kept}
        assert ("slim_rl/a.py:1: What one is." in capsys.readouterr().out) == bool(status)
