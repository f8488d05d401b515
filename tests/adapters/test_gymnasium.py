"""The Gymnasium environment: Gymnasium's own check, and the worker's dialogues."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.log import read_log
from tests.adapters.played import ASK, FAILING, SMALL, WORDS, by_worker, line
from tests.paths import ROOT

gymnasium = pytest.importorskip("gymnasium", reason="pip install -e environments/slim_rl_gymnasium")
NAME = "slim_rl_gymnasium:slim_rl/Matching-v0"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("given", [{"config": SMALL}, {"config": ROOT / "examples/secret_number.yaml"}])
def test_gymnasium_finds_nothing_wrong(given: dict[str, Any]) -> None:
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make(NAME, **given)
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("words", WORDS)
def test_an_episode_is_the_workers(words: list[str], seat: int, tmp_path: Path) -> None:
    env = gymnasium.make(NAME, config=SMALL | {"data": {"seat": seat}}, log=tmp_path / "log.jsonl")
    games = env.unwrapped.games
    (row,) = games.deal("train", 1)
    text, info = env.reset(seed=1, options={"row": row})
    rewards, ended = [], False
    for word in words:
        if not ended:
            _heard, reward, ended, truncated, last = env.step(word)
            rewards.append(reward)
            assert not truncated
    env.close()
    (dialogue,) = read_log(tmp_path / "log.jsonl")
    expected = asyncio.run(by_worker(games, row, words, int(dialogue.id.rpartition("/")[2])))
    assert line(dialogue) == line(expected)
    assert ended and rewards[-1] == expected.reward and not any(rewards[:-1])
    assert last["stop_reason"] == expected.stop_reason and last["metrics"]["questions"] >= 1
    assert info["messages"] == expected.prompt
    assert text == "\n\n".join(message["content"] for message in expected.prompt)


def test_a_seed_is_a_game_and_its_answers() -> None:
    env = gymnasium.make(NAME, config=SMALL)
    first, again = ([env.reset(seed=7), env.step(ASK), env.reset(), env.step(ASK)] for _ in range(2))
    assert first == again and first[0] != first[2]
    env.close()


def test_a_failed_game_is_truncated() -> None:
    env = gymnasium.make(NAME, config=FAILING)
    env.reset(seed=1)
    _, reward, terminated, truncated, info = env.step(ASK)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["failure"] == "no answer" and info["metrics"] == {}
    env.close()


def test_side_by_side_in_processes() -> None:
    alone = gymnasium.make(NAME, config=SMALL)
    expected = [alone.reset(seed=seed)[0] for seed in (3, 4)]
    # forked processes, which have not their parent's event loop; Gymnasium's shared memory does not pass text on
    apart = {"vectorization_mode": "async", "vector_kwargs": {"shared_memory": False}}
    envs = gymnasium.make_vec(NAME, num_envs=2, **apart, config=SMALL)
    assert list(envs.reset(seed=3)[0]) == expected
    assert len(envs.step([ASK, ASK])[0]) == 2
    alone.close()
    envs.close()
