"""An experiment is one folder with one YAML, whose steps `slim-rl lab run` plans and runs; `tests/goldens` holds the plans of those committed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl import cli
from slim_rl.commands.lab.run import step_of
from tests.paths import ROOT


def words(**options: Any) -> list[str]:
    (run,) = step_of({"evaluate": {"by": "program", **options}}, 1, Path("e.yaml")).runs
    return list(run.words)


def test_step_options_become_words() -> None:
    assert words(words="a.yaml", mode=["free", "forced:{1,3-4}"], keep=True, no=False, games=2) == [
        *("a.yaml", "--mode", "free", "--mode", "forced:1", "--mode", "forced:3", "--mode", "forced:4", "--keep"),
        *("--games", "2"),
    ]
    assert words(set={"a.b": [0.5, {}], "c": "3e-4", "d": False}, after=["--x", 1]) == [
        *("--set", "a.b=[0.5, {}]", "--set", "c=3e-4", "--set", "d=false", "--", "--x", "1")
    ]
    assert words(checkpoint="s{1-2}/t{3,4}")[1::2] == ["s1/t3", "s1/t4", "s2/t3", "s2/t4"]


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([{"fly": {}}], "the step 'fly' is not a command"),
        ([{"evaluate": {"words": "a.yaml", "moed": "free"}}], "No such option: --moed"),
        ([{"evaluate": {"words": "a.yaml", "games": "many"}}], "many"),
        ([{"evaluate": {}, "train": {}}], "step 1 is not one command"),
        ([{"evaluate": "a.yaml"}], "step 1 is not one command"),
        ("evaluate", "steps"),
    ],
)
def test_a_wrong_step_is_one_sentence(steps: Any, says: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump({"title": "t", "steps": steps}))
    with pytest.raises(SystemExit) as end:
        cli.main(["lab", "run", str(tmp_path), "--dry-run"])
    said = capsys.readouterr()
    assert end.value.code == 1 and says in said.err and said.err.count("\n") == 1 and not said.out


def test_a_step_that_failed_is_where_the_next_run_resumes(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    """By a Python that writes down what it is told, and fails in its second step, once."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/ran\n'
        f"case $* in *two*) test -e {tmp_path}/cause && exit 3;; *one*) touch {tmp_path}/made;; esac\nexit 0\n"
    )
    python.chmod(0o755)
    steps = [
        {
            "train": {
                "by": str(python),
                "words": name,
                **({"makes": str(tmp_path / "made")} if name == "one" else {}),
            }
        }
        for name in ("one", "two", "three")
    ]
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump({"title": "t", "steps": steps}))
    (tmp_path / "cause").touch()
    for code in (1, 0):
        with pytest.raises(SystemExit) as end:
            cli.main(["lab", "run", str(tmp_path)])
        assert end.value.code == code
        (tmp_path / "cause").unlink(missing_ok=True)
    ran = [line.split()[-1] for line in (tmp_path / "ran").read_text().splitlines()]
    assert ran == ["one", "two", "two", "three"]
    assert "two'. Fix the cause" in capfd.readouterr().err
    assert sys.executable not in (tmp_path / "ran").read_text()


def test_template_of_an_experiment_plans_its_runs(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(ROOT / "examples" / "experiment")
    with pytest.raises(SystemExit) as end:
        cli.main(["lab", "run", ".", "--dry-run"])
    said = capsys.readouterr()
    assert end.value.code == 0 and not said.err and said.out.count("slim-rl train matching_local") == 24
