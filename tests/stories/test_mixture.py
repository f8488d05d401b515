"""A mixture of partners gives a game the same one in every trainer. Another way to draw it, here by step, is an edit of one file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slim_rl.analysis.load import load
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.worker import RolloutWorker
from tests.paths import ROOT
from tests.stories.backends import BACKENDS, GAME, Story, by_verl

MIXTURE = {"keeper": 1, "gloomy": {"share": 1, "kind": "lock.Naysayer"}}
WORKER = "slim_rl/dialogue/worker.py"
DRAWN = ('"partner", spec.row.game_id)', '"partner", spec.step)')
PLAYED = """
import asyncio, json
from slim_rl.analysis.figures import training_by_partner
from slim_rl.analysis.load import frame_of
from slim_rl.analysis.report import _by_partner
from slim_rl.analysis.summary import summarise
from slim_rl.config import parse_config
from slim_rl.dialogue.games_file import deal
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.games.matching.partners.scripted import MutePartner

config = parse_config({"game": {"n": 3}, "partner": {"mixture": {"shy": 1, "mute": 1}}})
worker, rows, steps = RolloutWorker(config, None, MutePartner()), list(deal(config, "train", 3)), []
for step in range(8):
    played = asyncio.run(worker.play_all([worker.spec(row, str(step), step=step) for row in rows]))
    steps.append([dialogue for (dialogue,) in played])
everything = [dialogue for step in steps for dialogue in step]
for dialogue in everything:
    annotate(dialogue)
results = summarise(frame_of(everything))
print(json.dumps({
    "steps": [sorted({dialogue.partner["kind"] for dialogue in step}) for step in steps],
    "table": [row["partner"] for row in _by_partner(results).rows],
    "curves": {row["partner"]: row["curves"]["steps"] for row in results["by_partner"]},
    "drawn": [[len(line.get_xdata()) for line in ax.lines] for ax in training_by_partner(results).axes],
    "tracker": sorted(name for name in batch_metrics(everything) if name.startswith("partner/") and name.endswith("/reward")),
}))
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_trainer_draws_a_games_partner_alike(
    backend: Any, folder: Path, tokenizer: Any, tokenizer_dir: Path, tmp_path: Path
) -> None:
    story = Story(GAME, {"mixture": MIXTURE}, {}, lambda text: "2" if text.count("Is it") > 1 else "Is it odd?")
    tracked = backend(story, tokenizer, tokenizer_dir, tmp_path)
    played, worker = load([tmp_path]).frame, RolloutWorker(story.config(tmp_path), None)
    drawn = [worker.member_of(worker.spec(GameRow(str(name), 0, {}, []), "x")) for name in played["game_id"]]
    assert drawn and played["partner"].tolist() == drawn
    if backend is by_verl:  # which averages per dialogue; the others' trackers get a whole step
        assert tracked[f"partner/{drawn[0]}/questions"] == tracked["questions"] > 0


def test_drawing_by_step_is_one_edit(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "slim_rl", tmp_path / "slim_rl", ignore=shutil.ignore_patterns("__pycache__"))
    text = (tmp_path / WORKER).read_text()
    assert text.count(DRAWN[0]) == 1
    (tmp_path / WORKER).write_text(text.replace(*DRAWN))
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PLAYED], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {len(names) for names in found["steps"]} == {1} and {*map(tuple, found["steps"])} == {("mute",), ("shy",)}
    by_step = {name: [step for step, names in enumerate(found["steps"]) if names == [name]] for name in ("mute", "shy")}
    assert found["curves"] == by_step and found["drawn"] == [[len(steps) for steps in by_step.values()]] * 2
    assert found["table"] == ["mute", "shy"] and found["tracker"] == ["partner/mute/reward", "partner/shy/reward"]
