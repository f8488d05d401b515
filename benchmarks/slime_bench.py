# ruff: noqa: E402  (slime must be on the path first)
"""Shared parts of the slime hook's benchmarks: slime's arguments, a partner with fixed answers, an engine process.

They run slime's own code: SLIME_DIR must name a checkout of slime, in an environment that can import its rollout code.
"""

import multiprocessing
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

sys.path[:0] = [str(Path(__file__).parents[1])]
from tests.fakes.upstream import NO_SLIME, slimes

if not slimes():
    print(f"Left out: {NO_SLIME}.")
    raise SystemExit
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from slim_rl.dialogue import worker as worker_module
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Turn
from slim_rl.environment import View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.state import MatchingSettings
from slim_rl.lab.warmstart.tokenizer import train_tokenizer
from tests.backends import slime_setup
from tests.backends.slime_setup import Sample, Talker, make_args
from tests.fakes.sglang_server import SGLangServer


class Yes(Partner):
    """Instant partner that accepts every plan."""

    identity: ClassVar = {"kind": "yes"}

    def __init__(self, think: Callable[[View], Any] | None = None) -> None:
        self.think = think

    async def act(self, view: View) -> Turn:
        if self.think is not None:
            await self.think(view)
        return Turn("[accept]" if view.private.pending is not None else "[message] Ava Li on BLEU: 62.")


def make_tokenizer() -> Any:
    """Returns a tokenizer that encodes an 8×8 game in about as many tokens as Qwen's (about 900)."""
    env = MatchingEnv()
    texts = []
    for game in generate_games(20, MatchingSettings(), seed=9):
        env.reset(game)
        texts += [message["content"] for message in env.prompt(0)]
    return train_tokenizer(texts, vocab_size=2000)


def _serve(tokenizer: Any, turns: int, delay: Any, port: Any) -> None:
    talker = Talker(tokenizer, turns - 1, n=8)
    with SGLangServer(talker, delay=delay, context_length=10**6, prefix_cache=False, keep=False) as server:
        port.put(server.port)
        signal.pause()


@contextmanager
def engine(tokenizer: Any, turns: int, delay: Any = 0.0) -> Iterator[int]:
    """Starts an engine whose policy has `turns` turns per game, and yields its port."""
    context = multiprocessing.get_context("fork")
    port = context.Queue()
    process = context.Process(target=_serve, args=(tokenizer, turns, delay, port), daemon=True)
    process.start()
    try:
        yield port.get(timeout=60)
    finally:
        process.terminate()


def arguments(folder: str, port: int, **more: Any) -> Namespace:
    config = {"game": {"n": 8, "max_turns": 1000}}
    lengths = {"rollout_max_response_len": 10**5, "rollout_max_context_len": None, "ci_test": False}
    return make_args(Path(folder), port, Path(folder), config, sglang_server_concurrency=4096, **lengths, **more)


def samples(number: int, seed: int = 1) -> list[Sample]:
    made = []
    env = MatchingEnv()
    for index, game in enumerate(generate_games(number, MatchingSettings(), seed=seed)):
        env.reset(game)
        metadata = {"game_state": game.to_dict(), "game_id": f"g{index}", "seat": 0}
        made.append(
            Sample(group_index=index, index=index, prompt=env.prompt(0), metadata=metadata, session_id=f"s{index}")
        )
    return made


def run(args: Namespace, partner: Yes, work: Coroutine[Any, Any, Any]) -> Any:
    """Runs `work` on a new event loop, with `partner` for every dialogue."""
    worker_module.make_partners = lambda config: dict.fromkeys(config.members, partner)  # type: ignore[assignment]
    return slime_setup.run(args, work)
