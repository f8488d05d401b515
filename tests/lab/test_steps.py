"""An experiment is one folder with one YAML, from which `slim-rl lab run` plans what the Makefile once ran."""

from __future__ import annotations

import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl import cli
from slim_rl.commands.lab.run import numbers_of, step_of
from slim_rl.config import load_config
from slim_rl.lab.experiment.contrasts import load_manifest
from tests.paths import ROOT

ONCE = (Path(__file__).parent / "makefile_plans.txt").read_text(encoding="utf-8")
PLANS = {
    head: [line for line in lines.splitlines() if line]
    for head, lines in re.findall(r"^# (analysis\S*)\n(.*?)(?=^# |\Z)", ONCE, re.M | re.S)
}


def meaning(line: str) -> tuple[Any, ...]:
    """A command without the order of its options, and with the values of --set as YAML reads them."""
    line = line.removeprefix("env ").replace("/arms.yaml", "/experiment.yaml").replace("build/bench", "analysis/bench")
    line, _, after = line.partition(" -- ")
    program, *words = shlex.split(line, comments=True)
    plain, options = [], []
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            plain.append(word)
        elif word == "--overwrite":
            options.append((word, ""))
        elif word == "--set":
            key, _, value = words.pop(0).partition("=")
            options.append((word, f"{key}={yaml.safe_load(value)!r}"))
        else:
            options.append((word, words.pop(0)))
    plain = [path for text in plain for path in sorted(map(str, Path().glob(text))) or [text]]
    return program, tuple(plain), tuple(sorted(options)), after


def crossed(line: str, arms: list[str]) -> list[str]:
    """The runs of `lab arms`, as the command was then."""
    words = shlex.split(line)
    options = [(flag, word) for flag, word in pairwise(words) if flag.startswith("--")]
    (seeds,) = [word for flag, word in options if flag == "--seeds"]
    config = load_config(words[words.index("arms") + 1]).name
    named = [word for flag, word in options if flag == "--arm"] or arms
    return [f"{config}-{arm}-s{seed}" for seed in numbers_of(seeds) for arm in named]


@pytest.mark.parametrize("folder", sorted(PLANS.keys() - {"analysis/rescue"}))  # whose code is at f3ea9cdb
def test_lab_run_plans_what_the_makefile_ran(folder: str, monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as end:
        cli.main(["lab", "run", folder, "--dry-run"])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    once, arms = PLANS[folder], list(load_manifest(Path(folder, "experiment.yaml"))[0].arms)
    names = {name for line in once if " lab arms " in line for name in crossed(line, arms)}
    trained = [found[1] for line in lines if (found := re.search(r"--set name=(\S+-s\d+)", line)) and found[1] in names]
    assert sorted(trained) == sorted(names)
    planned = [meaning(line) for line in lines if not any(f"--set name={name} " in line for name in names)]
    assert planned == [meaning(line) for line in once if " lab results " not in line and " lab arms " not in line]


def test_every_experiment_of_the_makefile_is_a_folder() -> None:
    assert len(PLANS) == 12
    folders = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "analysis").rglob("experiment.yaml")}
    assert folders >= set(PLANS)


@pytest.mark.parametrize("folder", [folder for folder, lines in PLANS.items() if " lab results " in lines[-1]])
def test_lab_page_writes_where_the_makefile_wrote(folder: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(ROOT)
    manifest, _ = load_manifest(Path(folder, "experiment.yaml"))
    output = manifest.results or Path(folder, "results")
    keep = " --keep" if PLANS[folder][-1].endswith("--keep") else ""  # of former versions
    assert PLANS[folder][-1] == f"slim-rl lab results {folder}/experiment.yaml --output-dir {output}{keep}"


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
