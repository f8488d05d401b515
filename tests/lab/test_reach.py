"""An experiment whose seeds cannot show its primary contrasts says so; the template can show its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from slim_rl import statistics as st
from slim_rl.cli import main
from slim_rl.lab.experiment.contrasts import Contrasts
from slim_rl.lab.experiment.reach import out_of_reach
from tests.paths import ROOT

TEMPLATE = ROOT / "examples" / "experiment" / "experiment.yaml"


def contrasts(*changes: dict[str, Any]) -> Contrasts:
    one = {"measure": "questions", "a": "shy", "b": "mute", "direction": "more", "role": "primary"}
    return Contrasts.model_validate(
        {"contrasts": [{"name": f"c{n}", **one, **change} for n, change in enumerate(changes)]}
    )


CHANGE = {"a": {"arm": "shy", "when": "change"}, "b": None}
SLOPE = {"a": None, "b": None, "doses": [[0, "mute"], [0.5, "half"], [1, "shy"]]}


@pytest.mark.parametrize(
    ("family", "seeds", "far", "enough"),
    [
        ([{}], 4, [], 0),
        ([{}], 3, ["c0 (minimum Holm p 0.1)"], 4),
        ([CHANGE], 5, ["c0 (minimum Holm p 0.0625)"], 6),
        ([CHANGE], 6, [], 0),
        ([CHANGE, {}, {}], 4, ["c0 (minimum Holm p 0.125)", "c1 (minimum Holm p 0.0857)", "c2 (minimum Holm p 0.0857)"], 6),
        ([SLOPE], 2, [], 0),
        ([{}], 1, ["c0 (minimum Holm p 1)"], 4),
        ([{"role": "secondary"}], 2, [], 0),
        ([{"direction": "same", "margin": 0.1}], 2, [], 0),
        ([{"b": "elsewhere"}], 2, [], 0),
    ],
)  # fmt: skip
def test_contrasts_out_of_reach_are_named(family: list[Any], seeds: int, far: list[str], enough: int) -> None:
    found = list(out_of_reach(contrasts(*family), dict.fromkeys(("shy", "mute", "half"), range(seeds))))
    if not far:
        assert not found
        return
    (sentence,) = found
    assert all(name in sentence for name in far) and sentence.endswith(f"{enough} seeds per arm are enough.")


def test_the_least_p_is_what_a_permutation_reaches() -> None:
    for sizes in ([4], [6], [4, 4], [3, 2, 2]):
        arms = [np.arange(size) + 100.0 * (number + 1) for number, size in enumerate(sizes)]
        weights = np.linspace(-1, 1, len(arms)) if len(arms) > 1 else [1.0]
        found = st.permute(arms, weights)
        assert found.p == pytest.approx(found.least) and found.least == st.least_p(sizes)


def arms(*words: str, capsys: Any) -> str:
    with pytest.raises(SystemExit) as end:
        main(["lab", "run", str(TEMPLATE), "--dry-run", *words])
    assert end.value.code == 0
    return str(capsys.readouterr().err)


def test_arms_says_what_its_seeds_cannot_show(capsys: Any) -> None:
    said = arms("--seeds", "0-3", capsys=capsys)
    assert said.startswith("slim-rl: 3 primary contrasts never reach p < 0.05 with these seeds: ") and said[-1] == "\n"
    assert "6 seeds per arm are enough" in said and said.count("\n") == 1
    assert arms("--seeds", "0-5", capsys=capsys) == ""


def test_the_template_can_succeed(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(TEMPLATE.parent)
    with pytest.raises(SystemExit) as end:
        main(["lab", "run", ".", "--dry-run"])
    said = capsys.readouterr()
    assert end.value.code == 0 and not said.err and said.out.count("slim-rl train matching_local") == 24


def test_lab_run_says_what_its_steps_together_cannot_show(tmp_path: Path, capsys: Any) -> None:
    data = yaml.safe_load(TEMPLATE.read_text())
    step = data["steps"][0]["train"]
    data["steps"] = [{"train": {**step, "arms": arm, "seeds": "0-3"}} for arm in data["arms"]]
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(SystemExit):
        main(["lab", "run", str(tmp_path), "--dry-run"])
    assert "3 primary contrasts never reach" in capsys.readouterr().err
