"""The page of all keys and configs/matching.yaml are what the sections say, and matching.yaml holds what is shipped."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from reference_pages.config import LEFT_OUT, SHIPPED, page, recipe

from slim_rl.config import Config, Section, load_config, parse_config
from slim_rl.config.trainers import KEYS, lookup
from tests.paths import ROOT


def test_the_page_has_every_key_of_the_config() -> None:
    headings = set(re.findall(r"^### `(.*)`$", page(), re.M))
    keys = [key for key in KEYS if key.name not in ("log", "warmstart")]  # sections
    assert {key.name.replace("policy.openai.", "partner.openai.") for key in keys} <= headings
    for section in ("partner.openai", "train.lora", "partner.openai.prices", "game"):
        assert f"\n## `{section}`\n" in page()


def test_matching_yaml_is_the_defaults_but_for_what_is_shipped() -> None:
    shipped = [f"{name}={json.dumps(value, default=str)}" for name, (value, _) in SHIPPED.items()]
    assert load_config("matching") == parse_config({}, shipped)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_values_and_defaults_are_both_documented(name: str) -> None:
    value, why = SHIPPED[name]
    assert lookup(Config(), name) != value == lookup(load_config("matching"), name)
    told = " ".join(line.partition("# ")[2] for line in recipe().splitlines())
    assert why in told


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_what_the_file_leaves_out_is_there_to_be_left_out(name: str) -> None:
    lookup(Config(), name)


def test_every_value_of_the_file_has_its_meaning_beside_it() -> None:
    keys = [line for line in recipe().splitlines() if line.startswith("  ") and not line.lstrip().startswith("#")]
    assert len(keys) > 90 and all("# " in line for line in keys)
    assert "  # training steps: one rollout and one update each [--num-rollout]. Default 150" in recipe()


def test_allowed_values_are_documented_for_each_key() -> None:
    for line in (
        "trl, slime or verl: the trainer that",
        "constant, linear, cosine or wsd: how the rate",
        "tensorboard, wandb, mlflow or trackio: trackers",
    ):
        assert line in page() and line in recipe()
    assert "end: a turn that is cut at turn_tokens ends the game; continue: the text" in page()
    assert "all-linear: names" not in page()


def test_matching_yaml_has_every_key_that_slime_runs_read() -> None:
    text = (ROOT / "configs" / "matching.yaml").read_text(encoding="utf-8")
    assert _missing(Config, yaml.safe_load(text)["slim_rl"]) == LEFT_OUT
    assert all(len(line) <= 132 for line in text.splitlines())


def _missing(section: type[Section], given: dict, prefix: str = "") -> set[str]:
    missing: set[str] = set()
    for key, field in section.model_fields.items():
        inner = field.annotation
        if key not in given:
            missing.add(prefix + key)
        elif isinstance(inner, type) and issubclass(inner, Section):
            missing |= _missing(inner, given[key], f"{prefix}{key}.")
    return missing
