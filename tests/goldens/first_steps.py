"""The first steps of `make run`, on fewer games: each dialogue, each reward, each update."""

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.paths import ROOT

FEWER = (
    "train.steps=2", "train.games_per_step=4", "train.group_size=4", "train.eval_games=12", "train.processes=1",
    "data.num_train=40", "data.num_eval=12", "train.save_every=100", "train={lr_schedule: constant, lr_decay_steps: 0, warmup_steps: 0}",
)  # fmt: skip


def train_steps(folder: Path, *changes: str) -> Path:
    """Trains configs/matching_local.yaml for two steps in `folder`; returns the folder of its dialogue logs."""
    from slim_rl.backends.trl.run import train
    from slim_rl.config import load_config

    places = {"data.train": "train.jsonl", "data.eval": "eval.jsonl", "output_dir": "runs"}
    here = [f"{key}={folder / place}" for key, place in places.items()]
    model = f"policy.model={ROOT / 'data' / 'warmstart'}"
    return train(load_config(ROOT / "configs" / "matching_local.yaml", [*FEWER, model, *here, *changes])).log_dir


def figures() -> dict[str, Any]:
    """Computes what the run logs."""
    from slim_rl.dialogue.log import read_log
    from slim_rl.dialogue.measures import measures

    with tempfile.TemporaryDirectory() as folder:
        logs = train_steps(Path(folder), "name=first_steps")
        dialogues = {
            file.stem: [
                {
                    "game": line.game_id,
                    "group": line.group,
                    "step": line.step,
                    "seed": line.seed,
                    "said": [turn.text for turn in line.turns if turn.role == "policy"],
                    "reward": line.reward,
                    "questions": measures(line)["questions"],
                    "stop_reason": line.stop_reason,
                }
                for line in sorted(read_log(file), key=lambda line: line.id)
            ]
            for file in sorted(logs.glob("*.jsonl"))
        }
        lines = (Path(folder) / "runs" / "first_steps" / "metrics.jsonl").read_text().splitlines()
        steps = [
            {key: value for key, value in json.loads(line).items() if "second" not in key and "time" not in key}
            for line in lines
        ]
    return {**dialogues, "metrics": steps}
