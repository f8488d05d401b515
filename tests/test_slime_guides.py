"""The guides to slime name only what exists: metrics that the hook logs, flags of slime, settings of the launch."""

from __future__ import annotations

import re

from slim_rl.dialogue.measures import MEASURES, batch_metrics
from slim_rl.dialogue.record import Dialogue, StopReason
from tests.paths import ROOT

PAGES = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "how-to").glob("*.md")}
WATCH = PAGES["watch-a-run"]
TEXT = "\n".join(PAGES[name] for name in PAGES if name.startswith("slime-") or name == "troubleshooting")
OTHERS_MESSAGES = {"slim-rl: command not found", "Failed to connect to Ray"}  # of the shell and of Ray


def logged() -> set[str]:
    """What the hook logs, where there is any."""
    played = Dialogue("a", "g", 0, 0, {}, {}, {}, stop_reason=StopReason.AGREED, reward=0.5)
    failed = Dialogue("b", "g", 0, 0, {}, {}, {}, stop_reason=StopReason.PARTNER_FAILED)
    names = set(batch_metrics([played, failed])) | {"answered", "valid_proposals"}
    names |= {measure.name for measure in MEASURES.values() if measure.needs}  # of annotated dialogues
    names |= {"cost_usd", "partner_retries", "partner_cached"}  # of a partner behind an endpoint
    names |= {"train_reward"}  # where a control rewards something else
    names |= {f"stop/{reason.value}" for reason in StopReason}
    return names | {f"partner_seconds_{quantile}" for quantile in ("p50", "p95")}


def test_metrics_table_names_logged_metrics() -> None:
    _, _, table = WATCH.partition("| metric | read it as |\n")
    named = [
        name
        for line in table.partition("\n\n")[0].splitlines()
        for name in re.findall(r"`([\w/]+)`", line.split("|")[1])
    ]
    assert len(named) > 15
    assert set(named) <= logged()


def test_metrics_in_text_are_logged() -> None:
    ours = set(re.findall(r"`(?:eval/matching/)?dialogue/([\w/]+)`", WATCH + TEXT))
    assert len(ours) > 5 and ours <= logged()


def test_troubleshooting_quotes_messages_of_the_code() -> None:
    files = [
        path
        for folder in ("slim_rl", "scripts")
        for path in sorted((ROOT / folder).rglob("*.*"))
        if path.suffix in (".py", ".sh")
    ]
    code = "".join(path.read_text(encoding="utf-8") for path in files)
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # a message is often written as several literals
    heads = [line.split("|")[1] for line in PAGES["troubleshooting"].splitlines() if line.startswith("| `")]
    quoted = {message for head in heads for message in re.findall(r"`([^`]+)`", head)} - OTHERS_MESSAGES
    assert len(quoted) > 6
    for message in quoted:
        for part in re.split(r" ?… ?|--x", message):
            assert part in code, message
