"""The table of keys, held against the real TRL, slime's launch script and the config itself. (verl: test_verl_launch.py)"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from slim_rl.config import Config, parse_config
from slim_rl.keys import KEYS, table
from tests.paths import ROOT

OTHER: dict[str, Any] = {
    "train.lr_schedule": "cosine",
    "train.group_size": 4,
    "train.report_to": ["tensorboard"],
    "limits.dialogue_tokens": 777,
    "train.micro_batch": 32,
}


def lookup(config: Config, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_key_is_one_of_the_configs(key: Any) -> None:
    lookup(Config(), key.name)
    assert any((key.slime, key.trl, key.verl, key.note))


@pytest.mark.parametrize("key", [key for key in KEYS if key.trl], ids=lambda key: key.name)
def test_a_changed_key_reaches_trl(key: Any) -> None:
    pytest.importorskip("trl")
    from slim_rl.backends.trl.rollouts import grpo_arguments

    usual = lookup(Config(), key.name)
    other = OTHER.get(key.name)
    if other is None:
        other = not usual if isinstance(usual, bool) else usual + 2 if isinstance(usual, int) else (usual or 1.0) / 2
    before = grpo_arguments(Config(), Path("runs/x"))
    after = grpo_arguments(parse_config({}, [f"{key.name}={other}"]), Path("runs/x"))
    for field in key.trl:
        now = getattr(after, field)
        assert now != getattr(before, field), field
        if key.name != "train.scale_rewards":  # "group" or "none"
            assert (getattr(now, "value", now)) == other, field


def test_slimes_launch_script_sets_the_flags_of_the_shared_keys() -> None:
    script = (ROOT / "scripts" / "run_matching.sh").read_text()
    flags = set(re.findall(r"(?<![\w-])--[a-z0-9-]+", script))
    missing = {flag for key in KEYS if not key.name.startswith("verl.") for flag in key.slime} - flags
    assert not missing


def test_the_printed_table_is_the_documents() -> None:
    assert table() in (ROOT / "docs" / "config_keys.md").read_text()
