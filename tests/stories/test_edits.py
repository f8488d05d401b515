"""What a change takes: each is an edit of one file, and then stands everywhere. One process plays them all in a copy of the package.

a training key         its field says what it means and what the trainers call it
a kind of question     its entry and its rule stand side by side
a mixture's draw       of a partner per step instead of per game
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

FIELD = """    top_k: Annotated[
        int, Key("--rollout-top-k", {"top_k": lambda number: max(number, 0)}, f"{ROLLOUT}.top_k")
    ] = -1
    \'\'\'sample among so many of the likeliest tokens; -1: all of them\'\'\'
"""
RULE = '    if clause == "how are you":\n        return "small_talk"\n'
PROCESS = '    if begins("process", clause) and (marked or headed):\n'
EDITS = (
    ("slim_rl/config/sections.py", "    top_p: Annotated[float, ", f"{FIELD}    top_p: Annotated[float, "),
    ("slim_rl/games/matching/reading/acts.py", '"about the game"', '"about the game", "small_talk": "small talk"'),
    ("slim_rl/games/matching/reading/acts.py", PROCESS, RULE + PROCESS),
    ("slim_rl/dialogue/worker.py", '"partner", spec.row.game_id)', '"partner", spec.step)'),
)
PLAYED = """
import asyncio, json, runpy
from slim_rl.analysis.figures import training_by_partner
from slim_rl.analysis.load import frame_of, load
from slim_rl.analysis.report import _training
from slim_rl.analysis.summary import summarise
from slim_rl.backends.verl.settings import settings
from slim_rl.config import parse_config
from slim_rl.config.trainers import values
from slim_rl.dialogue.games_file import deal
from slim_rl.dialogue.log import DialogueLog, annotate, read_log
from slim_rl.dialogue.measures import batch_metrics, tracked
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import MATCHING
from slim_rl.games.matching.partners.scripted import MutePartner

config = parse_config({}, ["policy.top_k=40"])
key = {"slime": values(config, "slime"), "trl": values(config, "trl"), "verl": settings(config)}

SAID = ("[message] How are you?", "[message] Well.", "[message] What is Ava on Electra?", "[message] 180.")
STATE = {"table": [[60, 90], [80, 60]], "mask1": [[1, 0], [0, 1]], "mask2": [[0, 1], [1, 0]], "scale1": 1.0, "scale2": 2.0,
         "best_assignment_reward": 170}
with DialogueLog("logs/log.jsonl") as log:
    for number in range(4):
        turns = [Turn(said, i % 2, ("policy", "partner")[i % 2], {"kind": "message"}) for i, said in enumerate(SAID)]
        log.append(Dialogue(f"d{number}", f"g{number}", 0, number, STATE, {}, {"kind": "shy"}, step=number, turns=turns,
                            reward=0.0, stop_reason=StopReason.MAX_TURNS))
line, log = next(read_log("logs")), load(["logs"])
kind = [line.turns[0].questions, batch_metrics([line])["questions/small_talk"], "questions/small_talk" in tracked(MATCHING),
        int(log.frame["questions/small_talk"].sum()), log.kinds["small_talk"]]

config = parse_config({"game": {"n": 3}, "partner": {"mixture": {"shy": 1, "mute": 1}}})
worker, rows, steps = RolloutWorker(config, None, MutePartner()), list(deal(config, "train", 3)), []
for step in range(8):
    played = asyncio.run(worker.play_all([worker.spec(row, str(step), step=step) for row in rows]))
    steps.append([dialogue for (dialogue,) in played])
everything = [dialogue for step in steps for dialogue in step]
for dialogue in everything:
    annotate(dialogue)
results = summarise(frame_of(everything))
draw = {
    "steps": [sorted({dialogue.partner["kind"] for dialogue in step}) for step in steps],
    "table": [row["partner"] for row in _training(results).rows],
    "curves": {row["partner"]: row["curves"]["steps"] for row in results["by_partner"]},
    "drawn": [[len(line.get_xdata()) for line in ax.lines] for ax in training_by_partner(results).axes],
    "tracker": sorted(name for name in batch_metrics(everything) if name.startswith("partner/") and name.endswith("/reward")),
}
json.dump({"key": key, "kind": kind, "draw": draw}, open("found.json", "w"))
runpy.run_module("reference_pages", run_name="__main__")
"""


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the edited package, and of what it wrote."""
    folder = tmp_path_factory.mktemp("edited")
    shutil.copytree(ROOT / "slim_rl", folder / "slim_rl", ignore=shutil.ignore_patterns("__pycache__"))
    for name, before, after in EDITS:
        text = (folder / name).read_text(encoding="utf-8")
        assert text.count(before) == 1, name
        (folder / name).write_text(text.replace(before, after), encoding="utf-8")
    variables = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'tools'}", "NUM_GPUS": "8", "OPENAI_API_KEY": "sk-fake"}
    command = [sys.executable, "-c", PLAYED]
    done = subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def found(edited: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((edited / "found.json").read_text())
    return read


def test_key_is_in_both_written_files(edited: Path) -> None:
    page, recipe = ((edited / path).read_text() for path in ("docs/reference/config.md", "configs/matching.yaml"))
    told = "sample among so many of the likeliest tokens"
    entry = page.partition("\n### `policy.top_k`\n")[2].partition("\n### ")[0]
    assert told in entry
    assert "- slime: `--rollout-top-k`\n- TRL: `top_k`\n- verl: `actor_rollout_ref.rollout.top_k`\n" in entry
    assert f"  top_k: -1                    # {told}; -1: all of them [--rollout-top-k]" in recipe


def test_key_is_in_every_dry_run(found: dict[str, Any], tmp_path: Path) -> None:
    key, names = found["key"], {"verl": "actor_rollout_ref.rollout.top_k", "trl": "top_k", "slime": "--rollout-top-k"}
    assert {key[trainer][name] for trainer, name in names.items()} == {40}
    trl = pytest.importorskip("trl")
    assert trl.GRPOConfig(**key["trl"], output_dir=str(tmp_path), use_cpu=True, bf16=False).top_k == 40


def test_kind_of_question_is_in_log_tracker_and_tables(found: dict[str, Any]) -> None:
    """In the log, the tracker, its names in every backend, the frame and the tables; `test_own_game` follows one to every page."""
    assert found["kind"] == [["small_talk"], 1.0, True, 4, "small talk"]


def test_partner_drawn_by_step_is_in_curves_and_tracker(found: dict[str, Any]) -> None:
    draw = found["draw"]
    assert {len(names) for names in draw["steps"]} == {1} and {*map(tuple, draw["steps"])} == {("mute",), ("shy",)}
    by_step = {name: [step for step, names in enumerate(draw["steps"]) if names == [name]] for name in ("mute", "shy")}
    assert draw["curves"] == by_step and draw["drawn"] == [[len(steps) for steps in by_step.values()]] * 2
    assert draw["table"] == ["mute, shy", "mute", "shy"] and draw["tracker"] == [
        "partner/mute/reward",
        "partner/shy/reward",
    ]
