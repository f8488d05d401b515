"""Scripted players: what a config pays, what cheats get, and what the warm start learns from."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from examples.guess_who.demonstrations import QuestioningPlayer
from examples.guess_who.players import Asker, baselines
from slim_rl.config import Config, load_config
from slim_rl.dialogue.games_file import ensure_games, load_rows
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import ConfigError, DataError
from slim_rl.lab import incentives


def local(folder: Path, *overrides: str) -> Config:
    places = [f"data.train={folder}/t.jsonl", f"data.eval={folder}/e.jsonl", "data.num_train=60", "data.num_eval=30"]
    return load_config("guess_who_local", [*places, f"output_dir={folder}", *overrides])


def played(config: Config, player: Any) -> list[Dialogue]:
    worker = RolloutWorker(config, None, player)
    episodes = [worker.spec(row, "test") for row in load_rows(config, "eval")]
    found = [dialogue for (dialogue,) in asyncio.run(worker.play_all(episodes))]
    for dialogue in found:
        annotate(dialogue)
    return found


def mean(dialogues: list[Dialogue]) -> float:
    return sum(dialogue.reward or 0.0 for dialogue in dialogues) / len(dialogues)


def test_asking_pays_from_the_first_question_and_no_cheat_does(tmp_path: Path) -> None:
    found = incentives.measure(local(tmp_path), 120, (1, 3, 6))
    assert found.rewards_asking, found.sentence
    by_name = {line.name: line for line in found.lines}
    assert by_name["3 best questions"].reward.value > 0.9 > by_name["3 random questions"].reward.value
    assert by_name["3 best questions"].learned == pytest.approx(3, abs=0.1)
    cheats = [line for line in found.lines if line.against]
    assert len(cheats) == 8 and all(line.gain is not None and line.gain.low <= 0 for line in cheats)
    assert all(line.learned == 0 for line in cheats)


def test_ideal_asker_stops_when_certain_or_too_costly(tmp_path: Path) -> None:
    config = local(tmp_path)
    policies = baselines(config.game, 0.02, 2)
    assert list(policies) == ["random", "solo", "forced:2", "greedy:2", "ideal"]
    assert mean(played(config, policies["random"])) < 0.3 and mean(played(config, policies["solo"])) < 0.3
    games = played(config, policies["ideal"])
    assert mean(games) == 1.0 and {sum(t.seeking is True for t in game.turns) for game in games} <= {3, 4}
    assert all(not game.turns[0].questions for game in played(config, baselines(config.game, 0.9)["ideal"]))
    assert {measures(game)["questions"] for game in played(config, policies["forced:2"])} == {2}


def test_a_longer_asker_asks_what_a_shorter_one_asks_first(tmp_path: Path) -> None:
    config = local(tmp_path)
    for best in (False, True):
        few, many = (played(config, Asker(number, best)) for number in (2, 5))
        for one, other in zip(few, many, strict=True):
            questions = [[turn.pairs for turn in game.turns if turn.questions] for game in (one, other)]
            assert questions[1][:2] == questions[0]


def test_demonstrations_ask_independently_of_the_game(tmp_path: Path) -> None:
    config = local(tmp_path)
    never, twice = (played(config, QuestioningPlayer(messages)) for messages in ((1.0,), (0.0, 0.0, 1.0)))
    assert all(len(game.turns) == 1 and game.stop_reason is StopReason.FINISHED for game in never)
    for game in twice:
        own = [turn for turn in game.turns if turn.role == "policy"]
        assert len(own) == 3 and own[2].action is not None and own[0].pairs != own[1].pairs
        assert own[2].best_known and game.columns["left"] == round(1 / own[2].best_known)


def test_arms_that_differ_in_what_is_shown_play_the_same_games(tmp_path: Path) -> None:
    ensure_games(local(tmp_path))
    assert load_rows(local(tmp_path, "game.tiles=false", "game.rules=full", "game.max_errors=5"), "eval")
    with pytest.raises(DataError, match="size"):
        load_rows(local(tmp_path, "game.size=6"), "eval")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("warmstart.lessons={told: 3}", "warmstart.lessons has told, .* Choose from asked"),
        ("warmstart.partners={forthcoming: 1}", "warmstart.partners has forthcoming, .* Choose from shy, mute"),
        ("warmstart.player={thinks: turn}", "warmstart.player is {'thinks': 'turn'}, but .* leave it out"),
        ("environment=examples.secret_number.SecretNumber", "has no demonstrations"),
    ],
)
def test_a_warm_start_that_the_game_does_not_have_is_refused(tmp_path: Path, override: str, message: str) -> None:
    pytest.importorskip("torch")
    from slim_rl.lab.warmstart.train import warmstart

    extra = ["game={}", "partner={}", "arms={}"] if override.startswith("environment") else []
    with pytest.raises(ConfigError, match=message):
        warmstart(local(tmp_path, override, *extra), tmp_path / "model")
