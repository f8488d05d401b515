"""The worked example of your own game: playable, rewarded by its trajectory, and known to every backend by its name."""

from pathlib import Path
from typing import Any

import pytest

from examples.secret_number import SecretNumber, reward
from slim_rl.config import Config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.environment import make_environment
from tests import made
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

    async def play(*turns: str) -> Dialogue:
        game, policy = SecretNumber(high=8), Script(chat, turns)
        return await made.play(game, policy, None, {"share": 0.55}, chat)

    dialogue, silent = await play("4", "six, I mean 6", "I do not know.", "5"), await play("?", "??")
    assert (silent.stop_reason, silent.reward) == (StopReason.POLICY_ERRORS, 0.0)
    assert dialogue.stop_reason is StopReason.FINISHED and dialogue.reward == pytest.approx(0.6)
    assert [turn.action and turn.action["number"] for turn in dialogue.turns] == [4, 6, None, 5]
    assert dialogue.turns[2].error == "Say a number."
    heard = tokenizer.decode([t for t, m in zip(dialogue.response_ids, dialogue.loss_mask, strict=True) if not m])
    assert heard.count("Higher.") == heard.count("Lower.") == 1
    spoken = tokenizer.decode([t for t, m in zip(dialogue.response_ids, dialogue.loss_mask, strict=True) if m])
    assert spoken == "4<|im_end|>six, I mean 6<|im_end|>I do not know.<|im_end|>5<|im_end|>"


def test_the_config_deals_games_of_its_own_settings(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    rows = load_rows(config) + load_rows(config, "eval")
    assert len({row.game_state["share"] for row in rows}) == 17
    env = make_environment(config)
    assert isinstance(env, SecretNumber) and (env.high, env.max_turns, env.max_errors) == (8, 5, 2)


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
