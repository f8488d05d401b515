"""The session: whatever is said, its dialogue is the rollout worker's."""

import asyncio
import gc
import json
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.record import StopReason, Usage
from slim_rl.errors import ConfigError, DataError
from slim_rl.session import Games, Observation, Session, metrics, wait
from tests.adapters.played import ACTIONS, ASK, FAILING, OTHER, PROPOSE, SMALL, WRONG, by_worker, line
from tests.dialogue.players import Script
from tests.partners.openai_setup import spent_usd


async def say(session: Session, row: GameRow, words: list[str], number: int = 0) -> list[Observation]:
    seen = [await session.reset(row, number, "train")]
    for word in words:
        if seen[-1].done:
            break
        seen.append(await session.step(word))
    return seen


@settings(max_examples=25, deadline=None)
@given(words=st.lists(st.sampled_from(ACTIONS), max_size=8), seat=st.sampled_from([0, 1]), number=st.integers(0, 3))
def test_plays_as_the_worker_does(words: list[str], seat: int, number: int) -> None:
    games = Games(SMALL | {"data": {"seat": seat}})
    words = [*words, *[WRONG] * 2]  # which ends any game

    async def both() -> None:
        session = games.session()
        (row,) = games.deal("train", 1)
        seen = await say(session, row, words, number)
        expected = await by_worker(games, row, words, number)
        assert session.dialogue is not None and seen[-1].done
        assert line(session.dialogue) == line(expected)
        assert seen[-1].reward == expected.reward

    asyncio.run(both())


@pytest.mark.parametrize("seat", [0, 1])
async def test_plays_as_a_policy_with_tokens_does(tokenizer: Any, seat: int) -> None:
    games = Games(SMALL | {"data": {"seat": seat}})
    (row,) = games.deal("train", 1)
    words = ["<think>\nLet me ask.\n</think>\n\n" + ASK, WRONG, PROPOSE, OTHER, ASK, ASK]
    session = games.session()
    seen = await say(session, row, words)
    games.worker.chat = Chat(tokenizer)
    script = Script(games.worker.chat, words)
    expected = await by_worker(games, row, words, policy=script)
    assert session.dialogue is not None and line(session.dialogue) == line(expected)
    # what the policy read is what the tokens decode to
    assert [message["content"] for message in seen[0].messages] == [m["content"] for m in expected.prompt]
    last = tokenizer.decode(script.inputs[-1])
    position = 0
    for observation in seen:
        for message in observation.messages:
            position = last.index(message["content"], position)


@pytest.mark.parametrize(("cut", "ending"), [("end", StopReason.TURN_TOKENS), ("continue", StopReason.POLICY_ERRORS)])
async def test_a_turn_cut_by_its_tokens_ends_the_game_as_in_training(tokenizer: Any, cut: str, ending: Any) -> None:
    games = Games(SMALL, overrides=[f"limits.truncated_turn={cut}"])
    (row,) = games.deal("train", 1)
    session = games.session()
    await session.reset(row, 0, "train")
    for _ in range(2):  # a game that is over stays so
        seen = await session.step("[mess", cut=True)
    games.worker.chat = Chat(tokenizer)
    script = Script(games.worker.chat, [("[mess", "length")] * 2)
    assert session.dialogue is not None and line(session.dialogue) == line(
        await by_worker(games, row, [], policy=script)
    )
    assert session.dialogue.stop_reason is ending and seen.reward == 0.0


async def test_a_game_for_one_is_played_too() -> None:
    games, words = Games("examples/secret_number.yaml"), ["4", "6", "7", "8", "5"]
    (row,) = games.deal("train", 1)
    session = games.session()
    seen = await say(session, row, words)
    assert session.dialogue is not None and line(session.dialogue) == line(await by_worker(games, row, words))
    assert seen[1].text in ("Higher.", "Lower.") or seen[1].done


async def test_what_is_refused_is_told() -> None:
    games = Games(SMALL)
    session = games.session()
    opening = await session.reset(games.deal("train", 1)[0])
    assert [message["role"] for message in opening.messages] == ["system", "user"]
    seen = await session.step(WRONG)
    assert seen.error is not None and seen.text.startswith("Error") and not seen.done
    seen = await session.step(WRONG)
    assert seen.done and seen.reward == 0.0 and seen.messages == ()
    assert await session.step(ASK) == seen  # the game is over


@pytest.mark.parametrize(
    ("config", "reason"),
    [(FAILING, StopReason.PARTNER_FAILED), (SMALL | {"limits": {"turn_seconds": 0.05}}, StopReason.DEADLINE)],
    ids=["partner", "too slow a policy"],
)
async def test_a_failed_game_leaves_no_reward(config: Any, reason: StopReason) -> None:
    games = Games(config)
    session = games.session()
    await session.reset(games.deal("train", 1)[0])
    await asyncio.sleep(0.1)
    seen = await session.step(ASK)
    assert seen.done and seen.reward is None
    assert session.dialogue is not None and session.dialogue.stop_reason is reason
    assert metrics(session.dialogue) == {}


async def test_leaving_ends_the_game(tmp_path: Path) -> None:
    games = Games(SMALL, log=tmp_path / "log.jsonl")
    row = games.deal("train", 1)[0]
    session = games.session()
    await session.reset(row)
    seen = await session.leave(StopReason.DIALOGUE_TOKENS, "no more tokens")
    assert seen.done and seen.reward == 0.0
    await session.reset(row)
    await session.reset(row)  # aborts the one not yet ended: nothing of it is logged
    await session.step(WRONG)
    await session.step(WRONG)
    lines = [json.loads(text) for text in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [data["stop_reason"] for data in lines] == ["dialogue_tokens", "policy_errors"]
    assert [data["id"].rpartition("/")[2] for data in lines] == ["0", "2"]
    assert Games(SMALL, log=tmp_path / "log.jsonl").number(row) == 3, "the next process goes on"


async def test_bad_rows_and_selfplay_are_refused() -> None:
    with pytest.raises(ConfigError, match="self"):
        Games(SMALL, partner="self")
    with pytest.raises(DataError):
        await Games(SMALL).session().reset(GameRow("x", 0, {"table": []}, []))
    with pytest.raises(ConfigError, match="no split validation; choose train or eval"):
        Games(SMALL).deal("validation", 1)  # type: ignore[arg-type]


def test_waits_on_one_loop_and_leaves_no_game_behind(caplog: pytest.LogCaptureFixture) -> None:
    games = Games(SMALL)
    row = games.deal("train", 1)[0]
    session = games.session()
    assert not wait(session.reset(row)).done
    task = session._task
    assert task is not None
    del session
    gc.collect()
    wait(asyncio.sleep(0.01))
    assert task.cancelled()


def _loops(threads: int) -> int:
    """On how many event loops so many threads' first calls run."""
    together = threading.Barrier(threads)

    async def here() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def begin(_: int) -> asyncio.AbstractEventLoop:
        together.wait()
        return wait(here())

    with ThreadPoolExecutor(threads) as pool:
        return len(set(pool.map(begin, range(threads))))


def test_threads_that_begin_together_share_one_event_loop() -> None:
    with ProcessPoolExecutor(1) as fresh:  # a process that has no loop yet
        assert fresh.submit(_loops, 16).result() == 1


@pytest.mark.parametrize("seat", [0, 1])
async def test_the_price_of_a_question_is_told_as_the_record_says(seat: int) -> None:
    games = Games(SMALL | {"data": {"seat": seat}, "train": {"reward": "price", "reward_args": {"price": [0.02, 0.1]}}})
    session = games.session()
    opening = await session.reset(games.deal("train", 1)[0])
    await session.leave(StopReason.ENGINE_FAILED)
    assert session.dialogue is not None and session.dialogue.price in (0.02, 0.1)
    assert f"Each question costs {100 * session.dialogue.price:g}%" in opening.text
    assert list(opening.messages) == session.dialogue.prompt


def test_what_the_partner_costs_is_kept_beside_the_log(tmp_path: Path) -> None:
    endpoint = {"base_url": "http://127.0.0.1:9/v1", "budget_usd": 1.0}
    games = Games(SMALL | {"partner": {"kind": "openai", "openai": endpoint}}, log=tmp_path / "log.jsonl")
    spend = games.worker.partner_of(games.worker.spec(games.deal("eval", 1)[0], "x")).endpoint.spend  # type: ignore[union-attr]
    spend.add(Usage(calls=1, cost_usd=0.25))
    assert spent_usd(tmp_path) == 0.25
