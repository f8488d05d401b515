"""The worked example of your own game: playable, rewarded by its trajectory, and known to every backend by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from examples.secret_number import SecretNumber, reward
from slim_rl.backends.verl.data import read_game_state
from slim_rl.config import Config, Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.loop import play_dialogue
from slim_rl.dialogue.record import StopReason
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import make_environment
from slim_rl.errors import DataError
from tests.dialogue.players import Script
from tests.examples import sessions


def config_in(folder: Path, *overrides: str) -> Config:
    return sessions.config_in(folder, "secret_number", *overrides)


@pytest.mark.parametrize(
    ("guesses", "expected"), [([5], 1.0), ([1, 5], 0.8), ([1, 2, 3, 4, 5], 0.2), ([1, 2], 0.0), ([], 0.0)]
)
def test_the_reward_is_a_function_of_the_trajectory(guesses: list[int], expected: float) -> None:
    assert reward(guesses, secret=5, allowed=5) == pytest.approx(expected)


async def test_a_policy_that_halves_finds_the_number(tokenizer: Any) -> None:
    chat = Chat(tokenizer)
    policy = Script(chat, ["4", "six, I mean 6", "I do not know.", "5"])
    dialogue = await play_dialogue(
        SecretNumber(high=8), policy, None, chat, Limits(), game_state={"share": 0.55}, id="one", game_id="g"
    )
    assert dialogue.stop_reason is StopReason.FINISHED
    assert dialogue.reward == pytest.approx(0.6)
    assert [turn.action and turn.action["number"] for turn in dialogue.turns] == [4, 6, None, 5]
    assert dialogue.turns[2].error == "Say a number."
    heard = tokenizer.decode([t for t, m in zip(dialogue.response_ids, dialogue.loss_mask, strict=True) if not m])
    assert heard.count("Higher.") == heard.count("Lower.") == 1
    spoken = tokenizer.decode([t for t, m in zip(dialogue.response_ids, dialogue.loss_mask, strict=True) if m])
    assert spoken == "4<|im_end|>six, I mean 6<|im_end|>I do not know.<|im_end|>5<|im_end|>"


async def test_a_policy_that_says_no_number_gets_nothing(tokenizer: Any) -> None:
    chat = Chat(tokenizer)
    dialogue = await play_dialogue(
        SecretNumber(), Script(chat, ["?", "??"]), None, chat, Limits(), game_state={"share": 0.0}, id="one"
    )
    assert (dialogue.stop_reason, dialogue.reward) == (StopReason.POLICY_ERRORS, 0.0)


def test_the_config_deals_the_games_for_every_backend(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    train, held_out = load_rows(config), load_rows(config, "eval")
    assert (len(train), len(held_out)) == (12, 5)
    assert load_rows(config) == train
    shares = [row.game_state["share"] for row in train + held_out]
    assert len(set(shares)) == 17
    # slime reads the same file with --input-key prompt --metadata-key metadata
    line = json.loads((tmp_path / "train.jsonl").read_text().splitlines()[0])
    assert line["metadata"] == {"game_state": train[0].game_state, "game_id": train[0].game_id, "seat": 0}
    assert [message["role"] for message in line["prompt"]] == ["system", "user"]
    env = RolloutWorker(config, None).environment()
    assert isinstance(env, SecretNumber)
    assert (env.high, env.max_turns, env.max_errors) == (8, 5, 2)


def test_verl_reads_the_same_games(tmp_path: Path) -> None:
    from slim_rl.backends.verl.data import prompt_groups, write_parquet

    config = config_in(tmp_path)
    write_parquet(prompt_groups(config, "train"), tmp_path / "train.parquet", make_environment(config))
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert [read_game_state(row["extra_info"]) for row in rows] == [row.game_state for row in load_rows(config)]
    assert rows[3]["prompt"] == load_rows(config)[3].prompt
    assert rows[3]["extra_info"]["index"] == 3


def test_a_torn_games_file_is_said(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    load_rows(config)
    (tmp_path / "train.jsonl").write_text('{"prompt": [')
    with pytest.raises(DataError, match="line 1"):
        load_rows(config)


@pytest.mark.parametrize("number", range(3))
def test_a_person_is_told_what_the_game_replies(tmp_path: Path, number: int) -> None:
    config = config_in(tmp_path)
    secret = 1 + int(load_rows(config, "eval")[number].game_state["share"] * 8)
    guesses = [*range(1, secret + 1)] if secret <= 4 else [*range(8, secret - 1, -1)]
    reward, screen = sessions.played_by_hand(config, ["Hm.", *map(str, guesses)], game=number)
    assert reward == pytest.approx(1 - (len(guesses) - 1) / 5)
    hint = "Higher." if secret <= 4 else "Lower."
    assert screen.count(f"game> {hint}") == len(guesses) - 1
    assert "Say a number." in screen and "Type your action" in screen and f"reward: {reward:.2f}" in screen
