"""Wave sampling against one generate a turn: the same dialogues, the same model, alternating in one process.

python benchmarks/bench_wave.py [--model data/warmstart] [--dialogues 64] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

import torch

from slim_rl.config import PolicyConfig, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.games.matching.generate import generate_games
from slim_rl.policies.transformers import TransformersPolicy, load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="data/warmstart")
    parser.add_argument("--dialogues", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = parse_config(
        {
            "game": {"n": 3, "scales": False, "rules": "none"},
            "partner": {"accept_fraction": 0},
            "limits": {"turn_tokens": 64},
        }
    )
    model, tokenizer = load_model(PolicyConfig(model=options.model))
    chat = Chat(tokenizer)
    worker = RolloutWorker(config, chat)
    env = worker.environment()
    games = generate_games(options.dialogues, config.game)
    rows = [GameRow.of(env, game.id, game) for game in games]
    episodes = [worker.episode(row, "bench") for row in rows]

    def tokens_per_second(max_live: int | None, seed: int) -> float:
        policy = TransformersPolicy(model, chat.stop_ids, pad_id=tokenizer.pad_token_id)
        policy.reseed(seed)
        start = time.perf_counter()
        asyncio.run(worker.play_all(episodes, policy=lambda episode: policy, max_live=max_live))
        return policy.tokens_sampled / (time.perf_counter() - start)

    rates = [(tokens_per_second(None, r), tokens_per_second(1, r)) for r in range(options.rounds)]
    wave, single = (statistics.median(column) for column in zip(*rates, strict=True))
    print(f"{options.dialogues} dialogues, median of {options.rounds} alternating rounds")
    print(f"wave: {wave:.0f} tokens/s   one generate a turn: {single:.0f} tokens/s   ratio: {wave / single:.1f}")


if __name__ == "__main__":
    main()
