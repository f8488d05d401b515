"""Wave sampling against one generate a turn: the same dialogues, the same model, alternating in one process.

python benchmarks/bench_wave.py [--model data/warmstart] [--dialogues 64] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

import torch

from slim_rl.config import Config, GameConfig, Limits, PartnerConfig, PolicyConfig
from slim_rl.dialogue.batch import Job, play_jobs
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.rows import make_environment
from slim_rl.games.matching.generate import generate_games
from slim_rl.partners import make_partner
from slim_rl.policies.transformers import TransformersPolicy, load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="data/warmstart")
    parser.add_argument("--dialogues", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = Config(game=GameConfig(n=3, scales=False, rules="none"), partner=PartnerConfig(accept_fraction=0))
    model, tokenizer = load_model(PolicyConfig(model=options.model))
    chat, partner = Chat(tokenizer), make_partner(config.partner)
    games = generate_games(options.dialogues, config.game)
    jobs = [Job(f"{i:04}", game.id, game, seed=i) for i, game in enumerate(games)]

    def tokens_per_second(max_live: int | None, seed: int) -> float:
        policy = TransformersPolicy(model, chat.stop_ids, pad_id=tokenizer.pad_token_id)
        policy.reseed(seed)
        start = time.perf_counter()
        play = play_jobs(
            jobs, lambda: make_environment(config), policy, partner, chat, Limits(turn_tokens=64), max_live=max_live
        )
        asyncio.run(play)
        return policy.tokens_sampled / (time.perf_counter() - start)

    rates = [(tokens_per_second(None, r), tokens_per_second(1, r)) for r in range(options.rounds)]
    wave, single = (statistics.median(column) for column in zip(*rates, strict=True))
    print(f"{options.dialogues} dialogues, median of {options.rounds} alternating rounds")
    print(f"wave: {wave:.0f} tokens/s   one generate a turn: {single:.0f} tokens/s   ratio: {wave / single:.1f}")


if __name__ == "__main__":
    main()
