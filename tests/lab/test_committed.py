"""The committed results: what is published follows from the values that are published with it."""

from __future__ import annotations

from pathlib import Path

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
}
EXPERIMENTS = {
    "experiment.yaml": RESULTS,
    "confirmation/experiment.yaml": RESULTS / "confirmation",
    "trainers/experiment.yaml": RESULTS / "trainers",
    "asking/experiment.yaml": RESULTS / "asking",
}


@pytest.mark.parametrize("folder", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_the_ledgers_parts_sum_to_what_each_dialogue_lost(folder: Path) -> None:
    played = pd.read_parquet(folder / "held_out.parquet")
    assert len(played) > 1000
    whole, *parts = LOSSES
    assert ((played[parts].sum(axis=1, skipna=False) - played[whole]).abs() < 1e-12).all()


@pytest.mark.parametrize(("manifest", "folder"), EXPERIMENTS.items(), ids=EXPERIMENTS)
def test_every_contrast_comes_out_again(manifest: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a manifest's paths are those of the repository
    read, contrasts = load_manifest(ROOT / "analysis" / manifest)
    published = pd.read_csv(folder / "contrasts.csv", keep_default_na=False) if contrasts.contrasts else pd.DataFrame()
    published = published[~published["name"].isin(FROZEN)] if len(published) else published
    again = compare(Plays.read(folder), read, contrasts)
    assert [row["name"] for row in again] == list(published.get("name", []))
    for row, (_, line) in zip(again, published.iterrows(), strict=True):
        assert row["found"] == line["found"]
        for name in ("value", "low", "high", "p", "p_holm", "least_holm"):
            number = float("nan" if line.get(name, "") == "" else line[name])
            assert row.get(name, float("nan")) == pytest.approx(number, abs=1e-9, nan_ok=True), (row["name"], name)
