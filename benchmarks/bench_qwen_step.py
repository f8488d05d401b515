"""Seconds of a GRPO step of a pretrained model with adapters: prompts shared, prompts not shared, and another checkout.

    python benchmarks/bench_qwen_step.py --model build/qwen_start [--apart] [--other CHECKOUT] [--games 8] [--group 8] [--processes 1]

Each side trains the same games from the same model, in a process of its own. The learning rate is next to nothing, so that all sides
play the same dialogues. A side's figure is the median of its steps after the first.
"""

import argparse
import statistics
from pathlib import Path

from bench_step import HERE, Side, train

# Has no two dialogues share a prompt: not in sampling, and not in training, where TRL computes log-probabilities.
APART = """
from slim_rl.backends.trl import trainer
from slim_rl.policies.batching import decoding
trainer.suits = lambda model: False
decoding.tuple = lambda ids: object()
from slim_rl.cli import main
main()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=HERE / "build" / "qwen_start")
    parser.add_argument("--apart", action="store_true", help="measure without shared prompts, too")
    parser.add_argument("--other", type=Path, help="checkout of the commit before")
    parser.add_argument("--games", type=int, default=8, help="games per step")
    parser.add_argument("--group", type=int, default=8, help="dialogues per game")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="processes that share a step's dialogues")
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    if not options.model.exists():
        print(f"Left out: there is no model in {options.model}; `make qwen` makes one, or name another with --model.")
        return
    changes = {
        "policy.dtype": options.dtype,
        "policy.top_p": 0.95,
        "train.games_per_step": options.games,
        "train.group_size": options.group,
        "train.micro_batch": options.group,
        "train.processes": options.processes,
        "train.lora": "{r: 16, alpha: 32}",
    }
    model = str(options.model.resolve())
    sides: dict[str, tuple[Side, tuple[str, str]]] = {"prompts shared": (Side(HERE, model), ("-m", "slim_rl.cli"))}
    if options.apart:
        sides["not shared"] = (Side(HERE, model), ("-c", APART))
    if options.other:
        sides[f"checkout {options.other.name}"] = (Side(options.other.resolve(), model), ("-m", "slim_rl.cli"))
    for name, (side, program) in sides.items():
        train(side, options.steps, 0, "smollm2_local", changes, program)
        print(
            f"{name}: {statistics.median(side.seconds):.1f} s per step of {options.games * options.group} dialogues, "
            f"{statistics.fmean(side.questions):.2f} questions and {statistics.fmean(side.tokens):.0f} tokens per dialogue",
            flush=True,
        )
    shared, *others = ((name, statistics.median(side.seconds)) for name, (side, _) in sides.items())
    for name, seconds in others:
        print(f"steps per second, {shared[0]} to {name}: {seconds / shared[1]:.2f}")


if __name__ == "__main__":
    main()
