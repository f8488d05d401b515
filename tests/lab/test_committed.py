"""The committed results: what is published follows from the values that are published with it."""

from __future__ import annotations

import pandas as pd
import pytest

from slim_rl.lab.experiment.contrasts import load_manifest
from slim_rl.lab.experiment.plays import Plays
from slim_rl.lab.experiment.results import compare
from slim_rl.lab.gap import LOSSES
from tests.paths import ROOT

RESULTS = ROOT / "analysis" / "results"
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


@pytest.mark.parametrize("name", [".", "confirmation", "trainers", "asking"])
def test_the_ledgers_parts_sum_to_what_each_dialogue_lost(name: str) -> None:
    played = pd.read_parquet(RESULTS / name / "held_out.parquet")
    assert len(played) > 1000
    whole, *parts = LOSSES
    assert ((played[parts].sum(axis=1, skipna=False) - played[whole]).abs() < 1e-12).all()


@pytest.mark.parametrize(
    "name", [".", "confirmation", "trainers", "asking", "discovery", "wordings", "belief", "rescue"]
)
def test_every_contrast_comes_out_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a manifest's paths are those of the repository
    read, contrasts = load_manifest(ROOT / "analysis" / name / "experiment.yaml")
    published = pd.read_csv(RESULTS / name / "contrasts.csv", keep_default_na=False)
    published = published[~published["name"].isin(FROZEN)]
    again = compare(Plays.read(RESULTS / name), read, contrasts)
    assert [row["name"] for row in again] == list(published["name"])
    for row, line in zip(again, published.to_dict("records"), strict=True):
        for column, cell in line.items():
            now = row.get(column)
            same = str(now) == str(cell) or (cell == "" and (now is None or now != now))
            assert same or now == pytest.approx(float(cell), abs=1e-9), (row["name"], column)
