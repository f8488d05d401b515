"""The gate of analysis/qwen: its shares, its bounds, and that its names are in no demonstration."""

import importlib.util
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl.backends.slime import launch
from slim_rl.config import load_config, read_yaml
from slim_rl.dialogue.log import DialogueLog, annotate
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState
from tests.paths import ROOT

SPEC = importlib.util.spec_from_file_location("qwen_gate", ROOT / "analysis" / "qwen" / "gate.py")
assert SPEC and SPEC.loader
script: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

ROSTER = Roster(("Mei Lin", "Kofi Mensah"), ("ELMo", "ResNet"))
GAME = GameState([[9, 8], [7, 6]], [[1, 0], [0, 0]], [[1, 1], [1, 1]], 1.0, 1.0, 15, ROSTER)
ON, PART, OFF = (f"[message] What is {name} on ELMo?" for name in ("Kofi Mensah", "Kofi", "Kofi Annan"))


def played(number: int, *messages: str, agreed: bool = True) -> Dialogue:
    """Returns a dialogue with these messages of the policy, each answered."""
    turns = []
    for text in messages:
        turns.append(Turn(text, 0, "policy", {"kind": "message"}))
        turns.append(Turn("[message] I do not know.", 1, "partner", {"kind": "message"}))
    turns.append(Turn("[propose]", 0, "policy", {"kind": "propose", "assignment": [0, 1]}))
    reason = StopReason.AGREED if agreed else StopReason.MAX_TURNS
    ended: dict[str, Any] = {"turns": turns, "reward": float(agreed), "stop_reason": reason}
    dialogue = Dialogue(f"{number}#0", f"{number}", 0, 0, GAME.to_dict(), {}, {}, **ended)
    annotate(dialogue)
    return dialogue


def values(dialogues: Sequence[Dialogue]) -> dict[str, float]:
    return {name: round(share.value, 3) for name, share in script.gate(dialogues).items()}


def test_gate_counts_games_and_copied_names() -> None:
    some = [played(1, ON), played(2, ON, OFF), played(3, agreed=False), played(4, PART)]
    assert values(some) == {"agreed": 0.75, "on_board": 0.5, "asks": 0.75}


@pytest.mark.parametrize(
    ("messages", "disagreed", "code"),
    [
        ([[ON]] * 60 + [[]] * 140, 4, 0),
        ([[ON]] * 60 + [[]] * 140, 5, 1),  # 97.5% agreed
        ([[ON]] * 56 + [[OFF]] * 4 + [[]] * 140, 0, 1),  # 93% on the board
        ([[ON]] * 20 + [[]] * 180, 0, 1),  # asks in 10%
        ([[ON]] * 120 + [[]] * 80, 0, 1),  # asks in 60%
        ([[]] * 200, 0, 1),
    ],
)
def test_gate_fails_outside_each_bound(messages: list[list[str]], disagreed: int, code: int, tmp_path: Path) -> None:
    with DialogueLog(tmp_path / "logs" / "cell.jsonl") as log:
        for number, texts in enumerate(messages):
            log.append(played(number, *texts, agreed=number >= disagreed))
    assert script.main([str(tmp_path / "logs"), "--output", str(tmp_path / "out")]) == code
    numbers = json.loads((tmp_path / "out" / "gate.json").read_text())
    assert numbers["passes"] is (code == 0) and numbers["games"] == 200
    assert numbers["shares"]["agreed"]["value"] == pytest.approx(1 - disagreed / 200)


@pytest.mark.parametrize("name", ["qwen", "qwen_slime"])
def test_gate_names_are_in_no_demonstration(name: str) -> None:
    taught = yaml.safe_load((ROOT / "configs/qwen_local.yaml").read_text())["slim_rl"]["game"]
    steps = yaml.safe_load((ROOT / f"analysis/{name}/experiment.yaml").read_text())["steps"]
    (gate,) = (step["evaluate"] for step in steps if step.get("evaluate", {}).get("output") == f"logs/{name}/gate")
    unmet = {key: yaml.safe_load(gate["set"][f"game.{key}"]) for key in ("reviewers", "papers")}
    assert gate["games"] == script.GAMES and all(len(set(names)) == 24 for names in unmet.values())
    assert len(set(taught["reviewers"])) == len(set(taught["papers"])) == 300
    for key, names in unmet.items():
        words = {word for name in taught[key] for word in re.findall(r"\w+", name)}
        assert words.isdisjoint(word for name in names for word in re.findall(r"\w+", name)), key


def test_slime_trains_at_the_settings_of_its_gate() -> None:
    steps, arms = (read_yaml(ROOT / f"analysis/qwen_slime/{name}.yaml")["steps"] for name in ("experiment", "arms"))
    gate, trained = (next(step[name] for step in steps if name in step) for name in ("evaluate", "train"))
    changes = [f"{key}={json.dumps(value)}" for key, value in trained["set"].items()]
    config = load_config(ROOT / trained["words"], [*changes, "train.backend=slime"])
    launch.check(config)  # raises for adapters
    assert gate["set"]["policy"] == trained["set"]["policy"] == {"top_p": 1, "temperature": 0.8}
    assert (config.train.steps, config.train.warmup_steps, config.train.dialogues) == (9, 3, 32)
    assert all(arms[0]["train"]["set"][key] == trained["set"][key] for key in ("policy", "slime", "train"))
    assert len(config.game.reviewers) == 300 and config.policy.model == gate["checkpoint"]
