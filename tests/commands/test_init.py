"""`slim-rl lab init`: the files of an experiment work as they are, from an empty folder to the page."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from slim_rl.dialogue.log import DialogueLog
from slim_rl.lab.experiment.contrasts import load_manifest
from tests.analysis.synthetic import make_board, make_dialogue
from tests.commands.shell import refused, run
from tests.paths import ROOT


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("unprinted")
def test_from_an_empty_folder_to_the_page(empty: Path) -> None:
    assert "files to own/examples/" in run("lab", "init", "own")
    shutil.copytree("own/examples/experiment", ".", dirs_exist_ok=True)
    plan = run("lab", "run", ".", "--dry-run").splitlines()
    runs = [shlex.split(line)[-5].removeprefix("name=") for line in plan]
    written = yaml.safe_load(Path("experiment.yaml").read_text())
    assert runs == [f"matching_local-{arm}-s{seed}" for seed in range(8) for arm in written["arms"]]
    play(runs)
    assert "It learned to ask: from 0.000 to 2.00 questions per game" in run("lab", "page", ".")
    page = Path("results/README.md").read_text()
    for contrast in written["contrasts"]:
        assert f"| {contrast['name']} |" in page
    assert "| not run |" not in page and "Primary contrasts, preregistered" in page
    assert Path("results/results.html").is_file() and Path("results/training.png").is_file()


def play(runs: list[str]) -> None:
    """The logs that the runs would write, of scripted policies: those of shy ask twice after training, the others never."""
    rng = np.random.default_rng(0)
    boards = [(f"g{n}", make_board(rng, 3)) for n in range(5)]
    for name in runs:
        arm = name.removeprefix("matching_local-").rpartition("-")[0]
        with DialogueLog(Path("runs") / name / "logs" / "dialogues.jsonl") as log:
            for step, phase in ((0, "eval"), (0, "train"), (1, "train"), (2, "eval")):
                for game, board in boards:
                    asks = 2 if arm == "shy" and step == 2 else 0
                    place = {"id": f"{phase}/{step}/{game}", "game_id": game, "phase": phase, "step": step}
                    log.append(make_dialogue(rng, board, asks, arm, run=name, **place))


def test_what_is_written_is_never_over_a_persons_own_file(empty: Path) -> None:
    run("lab", "init", "paper")
    mine = Path("paper/examples/experiment/experiment.yaml")
    mine.write_text("title: mine")
    assert "exists: name another" in refused("lab", "init", "paper")
    assert mine.read_text() == "title: mine"


def test_the_lines_that_are_commented_out_can_be_used(empty: Path) -> None:
    """Every key that the files name in a comment is one."""
    text = (ROOT / "examples" / "experiment" / "experiment.yaml").read_text()
    head, _, sources = text.partition("sources:")
    opened = re.sub("# (text|preregistered|measures|prices):", r"\1:", head)
    opened += "sources:" + sources.replace("  # forced_{each}:", "  forced_{each}:").replace("  #   ", "    ")
    Path("experiment.yaml").write_text(opened)
    manifest, contrasts = load_manifest(Path("experiment.yaml"))
    assert manifest.sources.keys() == {"held_out", "forced_2", "forced_4"} and manifest.prices == {"shy": 0.02}
    assert not manifest.preregistered and len(contrasts.contrasts) == 5
