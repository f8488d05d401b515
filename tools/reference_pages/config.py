"""Page of the config's keys, and configs/matching.yaml: every key that a run on slime reads, with its meaning."""

import json
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from reference_pages.tables import GENERATED
from slim_rl.config import ROOT_KEY, ChatPolicyConfig, Config
from slim_rl.config.section import Key
from slim_rl.config.trainers import KEYS

_TABLE = {key.name: key for key in KEYS}

# configs/matching.yaml: its values that are not the defaults, each with what there is to say of it.
SHIPPED: dict[str, tuple[Any, str]] = {
    "name": ("matching", ""),
    "game.p_observed": (
        0.2,
        "this, p_observed_2, scales and hardness make asking raise the reward from the first question, and nothing but asking: see docs/how-to/check-that-asking-raises-reward.md, "
        "or `slim-rl lab incentives configs/matching.yaml`",
    ),
    "game.p_observed_2": (0.9, ""),
    "game.scales": (False, ""),
    "game.hardness": (0, ""),
    "data.eval": (Path("data/games_eval.jsonl"), ""),
    "data.num_train": (6400, "200 steps of 32 games, each played in one group only"),
    "data.num_eval": (200, "enough to know a mean reward to about ±0.02 (95%)"),
    "partner.kind": ("openai", ""),
    "partner.openai.budget_usd": (
        800.0,
        "above what this run may cost: about $350, $725 once the policy asks, three times that if nothing is cached",
    ),
    "limits.dialogue_tokens": (6144, ""),
    "limits.context_tokens": (8192, ""),
    "limits.turn_seconds": (900.0, ""),
    "policy.model": ("Qwen/Qwen3-4B", ""),
    "train.backend": ("slime", ""),
    "train.steps": (200, ""),
    "train.games_per_step": (32, ""),
    "train.learning_rate": (1e-6, "low, since all weights are trained; small models tolerate 2e-6"),
    "train.weight_decay": (0.1, "this and adam_beta2 as in slime's own examples"),
    "train.adam_beta2": (0.98, ""),
    "train.save_every": (20, "a checkpoint is 14 bytes a parameter (4B: 56 GB)"),
}
# Keys and sections that it does not have, since slime's runs do not read them.
LEFT_OUT = {
    "arms",
    "warmstart",
    "verl",
    "policy.openai",
    "policy.dtype",
    "partner.openai.prices",  # one model's would hide those that are known
    *(f"train.{name}" for name in ("reward", "reward_args", "frozen", "lora")),
    *(f"train.{name}" for name in ("micro_batch", "gradient_checkpointing", "keep_checkpoints")),
    *(f"train.{name}" for name in ("eval_games", "eval_before", "threads", "processes")),
}
_COLUMN, _WIDTH = 33, 130  # where a comment begins and ends

_INTRODUCTION = f"""\
# Config keys

A config is a YAML file with one top-level key, `slim_rl`. It lists what differs from the defaults below. All three trainers read it; a trainer that lacks a key refuses it, and names it. On the command line, change
one key with `--set train.steps=50`, or several of a section with `--set 'train={{steps: 50, save_every: 10}}'`.

A key that sets an option of a trainer names it: a flag of slime, a field of TRL's `GRPOConfig`, a key of verl. For any other option of a trainer, add slime's flag after the command, or use
`trl.overrides` or `verl.overrides`.

{GENERATED}
"""

_HEAD = f"""\
# A Qwen policy against GPT-4.1, trained by slime on a cluster:   MODEL=Qwen/Qwen3-4B scripts/run_matching.sh
#
# One key, {ROOT_KEY}, holds everything: this file is what slime's --custom-config-path is given. Every key that slime's runs read is
# listed, with slime's flag in brackets, and with its default if the value here differs. A key that is left out has its default; an
# unknown key is an error. Change a key for one run with --set partner.openai.budget_usd=50. Paths are relative to the folder where
# the run is started. This file is generated (reference_pages in tools/). For a custom config, copy it or list only
# what differs.

{ROOT_KEY}:"""


def page() -> str:
    """Returns the page of keys: every section of the default config, a heading per key."""
    parts = [_INTRODUCTION]
    for section, model, rows in _sections(Config(), ""):
        parts.append(f"## {f'`{section}`' if section else 'The run'}\n\n{_about(model)}\n")
        parts += [_entry(_key(section, name), info, value) for name, info, value in rows]
    return "\n".join(parts).rstrip() + "\n"


def _entry(key: Key, info: FieldInfo, value: Any) -> str:
    """Returns the heading, meaning, default and trainers' names of a key."""
    text = "; ".join(filter(None, [_described(info), key.note])).replace("\n", " ")
    meaning, *details = text.split("; ") if text.count("; ") > 1 else [text]
    names = [("slime", key.names("slime")), ("TRL", key.names("trl")), ("verl", key.names("verl"))]
    trainers = [f"- {trainer}: {', '.join(f'`{name}`' for name in given)}" for trainer, given in names if given]
    blocks = [[f"{meaning}."], [f"- {detail}" for detail in details], [f"Default: {_shown(value)}"], trainers]
    return "\n\n".join([f"### `{key.name}`", *("\n".join(lines) for lines in blocks if lines)]) + "\n"


def recipe() -> str:
    """configs/matching.yaml: the keys of the same sections, each with its shipped value or its default, and its meaning beside it."""
    lines = [_HEAD]
    for section, model, rows in _sections(Config(), ""):
        if any(f"{section}.".startswith(f"{name}.") for name in LEFT_OUT):
            continue
        depth = "  " * (1 + section.count(".") + bool(section))
        if section:
            lines += [""] * (section.count(".") == 0)
            lines += _commented(f"{depth[2:]}{section.rpartition('.')[2]}:", _about(model))
        for name, info, default in rows:
            key = _key(section, name)
            if key.name not in LEFT_OUT:
                value, why = SHIPPED.get(key.name, (default, ""))
                lines += _commented(f"{depth}{name}: {_yaml(value)}", _meaning(info, key, default, why))
    return "\n".join(lines) + "\n"


def _meaning(info: FieldInfo, key: Key, default: Any, why: str) -> str:
    flags = f" [{', '.join(key.names('slime'))}]" if key.slime else ""
    instead = f". Default {_yaml(default)}" if key.name in SHIPPED else ""
    return f"{_described(info)}{flags}{instead}{f'; here {why}' if why else ''}"


def _described(info: FieldInfo) -> str:
    """The field's description, after its choices where it does not name them all."""
    text, names = " ".join((info.description or "").split()), [str(choice) for choice in _choices(info.annotation)]
    if all(re.search(rf"\b{name}\b", text) for name in names):
        return text
    return f"{', '.join(names[:-1])} or {names[-1]}: {text}"


def _choices(kind: Any) -> tuple[Any, ...]:
    """What a field of one type may be: one, none or several of these."""
    kinds = [each for each in typing.get_args(kind) if each is not type(None)]
    if typing.get_origin(kind) is typing.Literal:
        return tuple(kinds)
    single = kinds[:1] if typing.get_origin(kind) is tuple else kinds
    return _choices(single[0]) if len(single) == 1 else ()


def _commented(line: str, comment: str) -> list[str]:
    """The line with its comment, which goes on below itself where it is long."""
    column = max(_COLUMN, len(line) + 2)
    first, *others = textwrap.wrap(comment, _WIDTH - column - 2, break_long_words=False, break_on_hyphens=False)
    return [f"{line:<{column}}# {first}", *(f"{'':<{column}}# {other}" for other in others)]


def _yaml(value: Any) -> str:
    plain = json.loads(json.dumps(value, default=str))
    return yaml.safe_dump(plain, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def _about(model: BaseModel) -> str:
    return " ".join((type(model).__doc__ or "").split("\n\n")[0].split())


def _key(section: str, name: str) -> Key:
    dotted = f"{section}.{name}" if section else name
    return _TABLE.get(dotted, Key(name=dotted))


_Row = tuple[str, FieldInfo, Any]


def _sections(model: BaseModel, path: str) -> Iterator[tuple[str, BaseModel, list[_Row]]]:
    """(dotted path, section, its plain keys) of `model` and of every section in it; optional ones with their own defaults."""
    rows: list[_Row] = []
    inner: list[tuple[str, BaseModel]] = []
    for name, info in type(model).model_fields.items():
        if isinstance(model, ChatPolicyConfig) and name not in ChatPolicyConfig.__annotations__:
            continue  # a key of partner.openai, which the page has already
        value = getattr(model, name)
        section = value if isinstance(value, BaseModel) else _optional_section(info)
        if not isinstance(value, BaseModel):
            rows.append((name, info, value))
        if section is not None:
            inner.append((f"{path}.{name}" if path else name, section))
    yield path, model, rows
    for name, section in inner:
        yield from _sections(section, name)


def _optional_section(info: FieldInfo) -> BaseModel | None:
    for kind in typing.get_args(info.annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind()
    return None


def _shown(value: Any) -> str:
    """A default, as one writes it in YAML; of a mapping that is long, its keys."""
    if isinstance(value, Mapping) and len(str(value)) > 60:
        return ", ".join(f"`{name}`" for name in value)
    text = json.dumps(value, default=str, ensure_ascii=False).strip('"') or '""'
    return f"`{text}`"
