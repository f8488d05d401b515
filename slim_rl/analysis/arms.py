"""Grouping of runs into arms, the same on every page.

Invariants:
    Runs are seeds of one arm only if their settings are equal except for the seed (`config.learned`).
    Any other run with that arm's name becomes a separate arm, named by the keys that differ.
    One seed of an arm counts once.
    No dialogue is left out: a run that is not pooled keeps its dialogues, under another arm's name.

Logs without settings are grouped by the initial policy of each run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import orjson
import pandas as pd

from slim_rl.config import Config
from slim_rl.config.section import SEED
from slim_rl.formats import listed

TRAIN = "train"
TREATMENT = "shy"  # default arm to compare the others with
UNIT = ["arm", "run", "folder"]
_NAMED = 2  # maximum number of differing keys in an arm's name
_PLAYED = ("game.", "partner.", "limits.", "policy.", "train.reward", SEED)  # settings of an evaluation
_PARTS = re.compile(r"([0-9]+)|([^0-9]+)")

Names = Mapping[tuple[str, str, str], str]


def order_arms(arms: Iterable[str], treatment: str = TREATMENT) -> list[str]:
    """Returns the arms, the treatment first, then by name, with numbers in numeric order: asks_2 before asks_108."""

    def key(arm: str) -> tuple[bool, list[tuple[bool, int, str]]]:
        return arm.partition(" (")[0] != treatment, [(bool(n), int(n or 0), word) for n, word in _PARTS.findall(arm)]

    return sorted(map(str, arms), key=key)


def units_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per arm, run and folder of a log's frame: settings, policy, environment, last step and size."""
    train = frame[frame["phase"] == TRAIN]
    rows = []
    for part, trained in ((frame.drop(train.index), False), (train, True)):
        grouped = part.groupby(UNIT, observed=True, sort=False)
        last, steps = grouped[["settings", "environment"]].last(), grouped["step"].max()
        rows.append(last.assign(policy=grouped["policy"].first(), step=steps, size=grouped.size(), trained=trained))
    units = pd.concat(rows)
    return units[~units.index.duplicated(keep="last")].sort_index().reset_index().astype(dict.fromkeys(UNIT, str))


def pooled(units: pd.DataFrame) -> tuple[Names, list[str]]:
    """Returns the arm of each unit, and sentences on runs that were not pooled."""
    names: dict[tuple[str, str, str], str] = {}
    apart: list[str] = []
    trained = units[units["trained"]]
    for part in (trained, units[~units["trained"]]):
        for arm, rows in part.groupby("arm", observed=True):
            names |= _of_arm(str(arm), rows, apart)
    of_run = {key[:2]: names[key] for key in map(tuple, trained[UNIT].itertuples(index=False))}
    for key in names:  # held-out games of a run that are logged in another folder
        if key[:2] in of_run and not (trained[UNIT] == key).all(axis=1).any():
            names[key] = of_run[key[:2]]
    return names, apart


def in_arms(frame: pd.DataFrame, names: Names) -> pd.DataFrame:
    """Returns the frame with its arms' names replaced."""
    if all(key[0] == name for key, name in names.items()):
        return frame
    grouped = frame.groupby(UNIT, observed=True, sort=False)
    of_group = [names[str(arm), str(run), str(folder)] for arm, run, folder in grouped.groups]
    return frame.assign(arm=np.array(of_group, dtype=object)[grouped.ngroup().to_numpy()])


def _of_arm(arm: str, rows: pd.DataFrame, apart: list[str]) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yields each unit's key and its arm's name."""
    settings = [_settings(row) for row in rows.to_dict("records")]
    seeds = [each.pop(SEED, None) for each in settings]
    keys = [orjson.dumps(each, option=orjson.OPT_SORT_KEYS) for each in settings]
    kinds = dict(zip(keys, settings, strict=True))
    names = dict(zip(kinds, _names(arm, list(kinds.values())), strict=True))
    if len(kinds) > 1:
        differ = ", ".join(_differing(list(kinds.values())))
        apart.append(f"Not pooled, because runs of {arm} differ in {differ}: {listed(list(names.values()))}.")
    first: dict[tuple[bytes, Any], str] = {}
    furthest = rows.assign(key=keys, seed=seeds).sort_values(["step", "size"], ascending=False, kind="stable")
    for row in furthest.to_dict("records"):
        name = names[row["key"]]
        before = first.setdefault((row["key"], row["seed"]), row["run"])
        if row["trained"] and pd.notna(row["seed"]) and before != row["run"]:
            apart.append(f"Not another seed of {name}: {row['run']} has the seed of {before}, {row['seed']:g}.")
            name = f"{name} (seed {row['seed']:g} again: {row['run']})"
        yield (row["arm"], row["run"], row["folder"]), name


def _settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that must be equal in runs of one arm, and the seed."""
    settings: dict[str, Any] = orjson.loads(row["settings"])
    if not row["trained"]:
        settings = {key: value for key, value in settings.items() if key.startswith(_PLAYED)}
    if not row["trained"] or not settings:
        settings["policy"] = str(row["policy"])
    return {**settings, "environment": str(row["environment"])}


def _differing(kinds: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for kind in kinds for key in kind)
    return [key for key in keys if len({orjson.dumps(_value(kind, key)) for kind in kinds}) > 1]


def _value(kind: Mapping[str, Any], key: str) -> Any:
    """Returns the value of a key; its default if the log does not have it."""
    if key in kind:
        return kind[key]
    try:
        value = attrgetter(key)(Config())
    except AttributeError:
        return None
    return value if isinstance(value, bool | int | float | str) else None


def _names(arm: str, kinds: Sequence[Mapping[str, Any]]) -> list[str]:
    if len(kinds) < 2:
        return [arm] * len(kinds)
    differ = _differing(kinds)
    more = f" and {len(differ) - _NAMED} more" if len(differ) > _NAMED else ""
    names: list[str] = []
    for kind in kinds:
        name = f"{arm} ({', '.join(f'{key}={_value(kind, key)}' for key in differ[:_NAMED])}{more})"
        names.append(f"{name} {sum(each.startswith(name) for each in names) + 1}" if name in names else name)
    return names
