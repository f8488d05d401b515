"""Committed results follow from the values beside them, and damaged values are one sentence."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from slim_rl.errors import DataError
from slim_rl.lab.experiment.contrasts import load_manifest
from slim_rl.lab.experiment.results import Plays, compare
from slim_rl.lab.gap import LOSSES
from tests.paths import ROOT

RESULTS = ROOT / "analysis" / "results"
LEDGERS = (".", "confirmation", "trainers", "asking")
EXPERIMENTS = (*LEDGERS, "discovery", "wordings", "belief", "rescue")
FROZEN = {  # computed at f3ea9cdb; the other contrasts of their families count them (`Contrasts.elsewhere`)
    "shaping asks sooner",
    "earns more than random questions",
    "asks by what it does not know",
    "asks hardly with an open book",
    "the whole dialogue's reward earns more than random questions",
    "takes off later the more rarely it asks",
    "takes off later, in groups of 32",
    *(f"larger groups from asks_{number}" for number in (108, 45, 25, 9, 2)),
}


def test_the_ledgers_parts_sum_to_what_each_dialogue_lost() -> None:
    for name in LEDGERS:
        played = pd.read_parquet(RESULTS / name / "held_out.parquet")
        whole, *parts = LOSSES
        assert len(played) > 1000
        assert ((played[parts].sum(axis=1, skipna=False) - played[whole]).abs() < 1e-12).all()


@pytest.mark.parametrize("file", [*(f"{name}/experiment" for name in EXPERIMENTS), "qwen/arms", "qwen_slime/arms"])
def test_every_contrast_comes_out_again(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a manifest's paths are those of the repository
    read, contrasts = load_manifest(ROOT / "analysis" / f"{file}.yaml")
    values = read.results or RESULTS
    published = pd.read_csv(values / "contrasts.csv", keep_default_na=False)[lambda rows: ~rows["name"].isin(FROZEN)]
    again = compare(Plays.read(values), read, contrasts)
    assert [row["name"] for row in again] == list(published["name"])
    for row, line in zip(again, published.to_dict("records"), strict=True):
        for column, cell in line.items():
            same = str(now := row.get(column)) == str(cell) or (cell == "" and (now is None or now != now))
            # published ones count games without a value too
            assert same or now == pytest.approx(float(cell), abs=1e-4), (row["name"], column)


@pytest.fixture
def values(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("*.png", "*.html")
    return Path(shutil.copytree(RESULTS / "trainers", tmp_path / "values", ignore=ignored))


NEEDED = {"held_out": ["condition", "arm", "run", "when", "game", "warnings", "provenance"], "training": ["arm", "run"]}


def test_values_without_a_column_are_one_sentence(values: Path) -> None:
    for file, column in [(file, column) for file, columns in NEEDED.items() for column in columns]:
        path = values / f"{file}.parquet"
        whole, frame = path.read_bytes(), pd.read_parquet(path)
        frame.attrs.pop(column, None)
        frame.drop(columns=column, errors="ignore").to_parquet(path, index=False)
        with pytest.raises(DataError, match=r"^.*values does not hold the values of an experiment \(.+\)\. Name.*$"):
            Plays.read(values)
        path.write_bytes(whole)


def test_a_damaged_file_is_one_sentence_or_read(values: Path) -> None:
    assert len(Plays.read(values).held_out) > 1000
    rng = np.random.default_rng(0)
    refused = 0
    for name in ("held_out", "training"):
        path = values / f"{name}.parquet"
        whole = path.read_bytes()
        for at in (*rng.integers(len(whole), size=2), *(len(whole) - rng.integers(1, 4000, size=5))):
            for damaged in (whole[:at], whole[:at] + bytes([rng.integers(256)]) + whole[at + 1 :]):
                path.write_bytes(damaged)
                try:
                    Plays.read(values)
                except DataError as error:
                    refused += "\n" not in str(error)
        path.write_bytes(whole)
    assert refused > 13
