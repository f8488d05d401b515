"""Logs, and an experiment of made-up runs whose behaviour is known."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import yaml

from slim_rl import statistics
from tests.analysis import synthetic
from tests.analysis.conftest import log_dir

__all__ = ["log_dir", "manifest_path"]  # fixtures

SEEDS, GAMES, STEPS = 4, 30, 6
CONTRASTS: list[dict[str, Any]] = yaml.safe_load("""
- {name: asks more, measure: questions, a: shy, b: mute, direction: more, role: primary}
- {name: "less, it was thought", measure: questions, a: shy, b: mute, direction: less, role: primary}
- {name: rises, measure: questions, a: {arm: shy, when: change}, direction: more, role: primary}
- {name: never run, measure: reward, a: shy, b: yoked, direction: more, role: primary}
- {name: dose, measure: questions, doses: [[0, mute], [0.5, shuffled_reward], [1, shy]], direction: more}
- {name: forced pays, measure: reward, a: {arm: shy, condition: forced_4}, b: {arm: shy, condition: forced_4, when: before}, direction: same, margin: 0.1}
- {name: above a number, measure: questions, a: shy, b: 0.3, direction: more}
""")


def evaluation(path: Path, model: str, board_seed: int = 1) -> None:
    """A log of `slim-rl evaluate`: 4 questions a game with this model."""
    boards = [synthetic.make_board(np.random.default_rng([board_seed, i]), 3) for i in range(GAMES)]
    rng = np.random.default_rng(zlib.crc32(model.encode()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for i, board in enumerate(boards):
            fields = {"id": f"e{i}", "game_id": f"g{i}", "run": path.stem, "step": 0, "phase": "eval"}
            dialogue = synthetic.make_dialogue(rng, board, 4, "shy", **fields)
            dialogue.arm, dialogue.policy = path.stem, {"model": str(Path(model).absolute())}  # slime logs it so
            file.write(orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n")


@pytest.fixture(scope="module")
def few_draws() -> Iterator[None]:
    """The draws of a permutation test that the contrasts of the made-up runs need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "RESAMPLES", 1000)
        yield


@pytest.fixture(scope="session")
def manifest_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment")
    arms = ("shy", "mute", "shuffled_reward")
    settings = {"steps": STEPS, "games_per_step": 4, "group": 1, "n": 3}
    synthetic.write_runs(folder / "arms", arms=arms, seeds=SEEDS, eval_games=GAMES, **settings)
    for model in ("tiny", *(f"runs/shy-{seed}/model" for seed in range(SEEDS))):
        evaluation(folder / "forced" / f"{Path(model).parent.name or model}_forced4.jsonl", model)
    (folder / "text.md").write_text("## What it shows\n\nNothing; it is *made up*. <script>no</script>\n")
    (folder / "contrasts.yaml").write_text(yaml.safe_dump({"contrasts": CONTRASTS}))
    manifest = {
        "title": "Made-up runs",
        "contrasts": str(folder / "contrasts.yaml"),
        "commit": "abc1234",
        "machine": "no machine",
        "text": str(folder / "text.md"),
        "prices": {"mute": 0.1},
        "measures": ["questions", "reward", "net_reward", "best_known", "malformed_share"],
        "sources": {
            "held_out": {"logs": [str(folder / "arms")], "command": "slim-rl lab arms here"},
            "forced_{each}": {
                "each": [4],
                "logs": [str(folder / "forced" / "*_forced{each}.jsonl")],
                "command": "slim-rl evaluate here --mode forced:{each}",
            },
            "transfer": {"logs": [str(folder / "not_yet")], "command": "slim-rl evaluate later"},
        },
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    return folder / "experiment.yaml"
