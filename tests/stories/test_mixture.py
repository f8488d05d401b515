"""A mixture of partners gives a game the same one in every trainer."""

from pathlib import Path
from typing import Any

import pytest

from slim_rl.analysis.load import load
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.worker import RolloutWorker
from tests.stories.backends import BACKENDS, GAME, Story, by_verl

MIXTURE = {"keeper": 1, "gloomy": {"share": 1, "kind": "tests.stories.lock.Naysayer"}}


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_trainer_draws_a_games_partner_alike(backend: Any, tokenizer: Any, tmp_path: Path) -> None:
    story = Story(GAME, {"mixture": MIXTURE}, {}, lambda text: "2" if text.count("Is it") > 1 else "Is it odd?")
    tracked = backend(story, tokenizer, tmp_path)
    played, worker = load([tmp_path]).frame, RolloutWorker(story.config(tmp_path), None)
    drawn = [worker.member_of(worker.spec(GameRow(str(name), 0, {}, []), "x")) for name in played["game_id"]]
    assert drawn and played["partner"].tolist() == drawn
    if backend is by_verl:  # which averages per dialogue; the others' trackers get a whole step
        assert tracked[f"partner/{drawn[0]}/questions"] == tracked["questions"] > 0
