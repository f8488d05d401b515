"""Speed of the policy's decoding, compared with transformers' continuous batching.

Both play the same dialogues with the same model, alternating in one process.

    python benchmarks/bench_batching.py [--model data/warmstart] [--dialogues 64 128] [--rounds 3] [--block 64]

Both sample from all tokens and return logprobs. Continuous batching keeps its manager and its blocks from round to round, shares the blocks of
equal beginnings, and is handed a turn the moment its dialogue has reached it, as ours is.
"""

import argparse
import asyncio
import itertools
import statistics
import time
from typing import Any

from small_games import small_games
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from slim_rl.dialogue.players import Policy, Sampled


class ContinuousPolicy(Policy):
    """Policy that samples with a started manager of continuous batching."""

    identity = {"engine": "continuous batching"}  # noqa: RUF012

    def __init__(self, manager: Any, stop_ids: list[int]) -> None:
        self.manager, self.stop_ids = manager, stop_ids
        self.tokens_sampled = 0
        self._numbers = itertools.count()

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        name = f"{id(self)} {next(self._numbers)}"
        self.manager.register_result_handler(name, done.set_result)
        self.manager.add_request(list(input_ids), name, max_tokens, eos_token_id=self.stop_ids)
        output = await done
        assert output.error is None, output.error
        ids = [int(token) for token in output.generated_tokens]
        assert len(ids) == len(output.logprobs)
        self.tokens_sampled += len(ids)
        return Sampled(ids, output.logprobs, "stop" if ids[-1] in self.stop_ids else "length")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="data/warmstart")
    parser.add_argument("--dialogues", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--block", type=int, default=64, help="tokens per block of keys and values")
    options = parser.parse_args()
    games = small_games(options.model, max(options.dialogues))
    model, chat = games.model, games.chat

    def tokens_per_second(number: int, policy: Any) -> tuple[float, float]:
        """Returns tokens per second of processor time, which other processes do not affect, and tokens per dialogue."""
        start, before = time.process_time(), policy.tokens_sampled
        asyncio.run(games.worker.play_all(games.specs[:number], policy=lambda spec: policy))
        tokens = policy.tokens_sampled - before
        return tokens / (time.process_time() - start), tokens / number

    plain = AutoModelForCausalLM.from_pretrained(options.model, dtype=model.dtype).eval()
    sampling = GenerationConfig(do_sample=True, top_k=0, top_p=1.0, temperature=1.0, max_new_tokens=64)
    sampling.eos_token_id, sampling.pad_token_id = chat.stop_ids, games.tokenizer.pad_token_id
    longest = model.config.max_position_embeddings
    batching = ContinuousBatchingConfig(
        block_size=options.block,
        num_blocks=max(options.dialogues) * -(-longest // options.block),
        max_batch_tokens=max(options.dialogues) * 64,
        return_logprobs=True,
        seed=0,
    )
    with plain.continuous_batching_context_manager(
        sampling, continuous_batching_config=batching, warmup=False
    ) as manager:
        for number in options.dialogues:
            rates: list[tuple[float, float]] = []
            lengths: list[tuple[float, float]] = []
            for seed in range(options.rounds):
                policies: list[Policy] = [games.policy(seed), ContinuousPolicy(manager, chat.stop_ids)]
                found = [tokens_per_second(number, policy) for policy in policies]
                rates.append((found[0][0], found[1][0]))
                lengths.append((found[0][1], found[1][1]))
            own, theirs = (statistics.median(column) for column in zip(*rates, strict=True))
            tokens = [round(statistics.fmean(column)) for column in zip(*lengths, strict=True)]
            print(
                f"{number} dialogues, median of {options.rounds} alternating rounds: ours {own:.0f} tokens/s, continuous batching "
                f"{theirs:.0f} tokens/s, ratio {own / theirs:.1f} ({tokens[0]} and {tokens[1]} tokens per dialogue)"
            )


if __name__ == "__main__":
    main()
