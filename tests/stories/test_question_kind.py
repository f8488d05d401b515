"""A kind of question is added to the matching game by its entry and its rule, side by side in one file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

RULES = Path("slim_rl/games/matching/reading/acts.py")
EDITS = (
    ('"process": "about the game"', '"process": "about the game", "small_talk": "small talk"'),
    (
        "    if _PROCESS.match(clause) and (marked or headed):\n",
        '    if clause == "how are you":\n        return "small_talk"\n    if _PROCESS.match(clause) and (marked or headed):\n',
    ),
)
SHOWN = """
import json
from slim_rl.analysis import analyze
from slim_rl.analysis.load import load
from slim_rl.analysis.dialogues import collect
from slim_rl.dialogue.log import DialogueLog, annotate, read_log
from slim_rl.dialogue.measures import batch_metrics, tracked
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.environment import MATCHING

SAID = ("[message] How are you?", "[message] Well.", "[message] What is Ava on Electra?", "[message] 180.")
STATE = {"table": [[60, 90], [80, 60]], "mask1": [[1, 0], [0, 1]], "mask2": [[0, 1], [1, 0]], "scale1": 1.0, "scale2": 2.0,
         "best_assignment_reward": 170}
with DialogueLog("logs/log.jsonl") as log:
    for number in range(4):
        turns = [Turn(said, i % 2, ("policy", "partner")[i % 2], {"kind": "message"}) for i, said in enumerate(SAID)]
        log.append(Dialogue(f"d{number}", f"g{number}", 0, number, STATE, {}, {"kind": "shy"}, step=number, turns=turns,
                            reward=0.0, stop_reason=StopReason.MAX_TURNS))
line = next(read_log("logs"))
log, summary = load(["logs"]), analyze(["logs"], "plots")
print(json.dumps({
    "log": line.turns[0].questions, "tracker": batch_metrics([line])["questions/small_talk"],
    "every backend": "questions/small_talk" in tracked(MATCHING), "frame": int(log.frame["questions/small_talk"].sum()),
    "table": log.kinds["small_talk"], "report": summary.results["kinds"]["shy"]["shares"]["small_talk"],
    "figure": "question_kinds" in summary.figures, "viewer": [k for turn in collect(log, 9)[0].dialogues[0].dialogue.turns for k in turn.questions or ()],
}))
"""


def test_one_file_is_edited(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "slim_rl", tmp_path / "slim_rl", ignore=shutil.ignore_patterns("__pycache__"))
    rules = (tmp_path / RULES).read_text()
    for old, new in EDITS:
        assert rules.count(old) == 1
        rules = rules.replace(old, new)
    (tmp_path / RULES).write_text(rules)
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SHOWN], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "log": ["small_talk"], "tracker": 1.0, "every backend": True, "frame": 4, "table": "small talk",
        "report": [0.5] * 4, "figure": True, "viewer": ["small_talk", "pair"],
    }  # fmt: skip
