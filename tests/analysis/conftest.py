"""Logs of made-up runs, shared by the tests of this room."""

from pathlib import Path

import orjson
import pytest

from slim_rl.analysis import Summary, analyze
from slim_rl.lab import sections  # noqa: F401  as the command registers them
from tests.analysis import synthetic
from tests.made import blank_figures


@pytest.fixture(scope="session")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms of two runs each; see `synthetic.ASKS` for what they do."""
    folder = tmp_path_factory.mktemp("logs")
    synthetic.write_runs(folder, arms=("mute", "shy"), seeds=2, steps=24, games_per_step=2, group=2, n=3, eval_games=8)
    return folder


@pytest.fixture(scope="session")
def analysed(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return analyze(
        [log_dir], tmp_path_factory.mktemp("plots"), max_dialogues=60, paper=True, command="analyze <these> & those"
    )


@pytest.fixture(scope="session")
def evil_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on dialogues in which every free text is an attack."""
    folder = tmp_path_factory.mktemp("evil")
    with (folder / "log.jsonl").open("wb") as file:
        for dialogue in synthetic.make_runs(arms=("shy",), seeds=1, steps=2, games_per_step=2, n=3, eval_games=0):
            dialogue.arm = dialogue.run = dialogue.game_id = dialogue.failure = synthetic.EVIL
            dialogue.id += synthetic.EVIL
            dialogue.policy = dialogue.partner = {"model": synthetic.EVIL}
            dialogue.prompt = [{"role": synthetic.EVIL, "content": synthetic.EVIL}]
            dialogue.turns[0].text = dialogue.turns[0].thought = dialogue.turns[0].error = synthetic.EVIL
            file.write(orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n")
    with pytest.MonkeyPatch.context() as patch:
        blank_figures(patch)
        return analyze([folder], folder / "plots").report
