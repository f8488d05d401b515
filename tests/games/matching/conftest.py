"""Games and records that the tests of this room share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.paths import HUMAN

HUMAN_GAMES = HUMAN / "optimization.jsonl"


@pytest.fixture(scope="session")
def human_games() -> list[dict[str, Any]]:
    if not HUMAN_GAMES.exists():
        pytest.skip("DialOp's human games are not here")
    return [json.loads(line) for line in HUMAN_GAMES.read_text(encoding="utf-8").splitlines()]
