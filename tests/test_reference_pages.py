"""Reference pages hold what the code has: commands, metrics, fields of a log line, stop reasons."""

from __future__ import annotations

import re

import pytest
from reference_pages import PAGES
from reference_pages.metrics import BATCH

from slim_rl.dialogue.measures import MEASURES, batch_metrics
from slim_rl.dialogue.record import Dialogue, StopReason, Turn, Usage
from tests.paths import ROOT

REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize("path", PAGES)
def test_generated_page_is_up_to_date(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert text == PAGES[path](), "write it again: PYTHONPATH=tools python -m reference_pages"


def test_metrics_page_has_every_metric_of_a_step() -> None:
    turns = [Turn("x", role=role, usage=Usage(calls=1, input_tokens=1)) for role in ("policy", "partner")]
    played = Dialogue("a", "g", 0, 0, {}, {}, {}, turns=turns, stop_reason=StopReason.AGREED, reward=0.5)
    failed = Dialogue("b", "g", 0, 0, {}, {}, {}, stop_reason=StopReason.PARTNER_FAILED)
    logged = {re.sub(r"^(stop|failure)/.*", r"\1/{}", name) for name in batch_metrics([played, failed])}
    assert {"stop/{}", "failure/{}", "cost_usd", "partner_seconds_p50"} <= logged
    measures = {name for name in logged if name not in BATCH and not name.startswith("questions/")}
    assert measures <= set(MEASURES)


def columns(page: str) -> set[str]:
    """The names in the first column of a page's tables."""
    lines = re.findall(r"^\| ([^|]*) \|", (REFERENCE / page).read_text(encoding="utf-8"), re.M)
    return {name for line in lines for name in re.findall(r"`(\w+)`", line)}


def test_log_format_page_has_every_key_and_reason() -> None:
    reasons = {reason.value for reason in StopReason}
    keys = {*Dialogue.__dataclass_fields__, *Turn.__dataclass_fields__} - {"cut"}
    assert columns("log-format.md") == keys | reasons | {"format"}
