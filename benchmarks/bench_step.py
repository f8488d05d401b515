"""Seconds of a training step, of two checkouts in alternation.

    python benchmarks/bench_step.py --model data/warmstart [--other CHECKOUT --other-model FOLDER] [--steps 6] [--rounds 3]

Each round trains a few steps of 128 dialogues of `configs/matching_local.yaml` in each checkout, with its initial policy and settings;
the learning rate is next to nothing, so that the dialogues of a round stay as long as they were. What is compared are dialogues with as
many questions: choose two models that ask about as often, such as one that was trained until it does.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]


@dataclass
class Side:
    """Checkout with its initial policy, and the measured seconds, questions and tokens per dialogue."""

    checkout: Path
    model: str
    seconds: list[float] = field(default_factory=list)
    questions: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="data/warmstart")
    parser.add_argument("--other", type=Path)
    parser.add_argument("--other-model", default="data/warmstart")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sides = [Side(HERE, options.model)]
    if options.other:
        sides.append(Side(options.other.resolve(), options.other_model))
    for round_number in range(options.rounds):
        for side in sides:
            train(side, options.steps, seed=round_number)
    for side in sides:
        print(
            f"{side.checkout.name}: {statistics.median(side.seconds):.2f} s per step, "
            f"{statistics.fmean(side.questions):.2f} questions and {statistics.fmean(side.tokens):.0f} tokens per dialogue"
        )
    if options.other:
        here, other = (statistics.median(side.seconds) for side in sides)
        print(f"steps per second, {sides[0].checkout.name} to {sides[1].checkout.name}: {other / here:.2f}")


def train(
    side: Side,
    steps: int,
    seed: int,
    config: str = "matching_local",
    more: Mapping[str, Any] | None = None,
    program: Sequence[str] = ("-m", "slim_rl.cli"),
) -> None:
    """Adds what all steps except the first show, which has the start of the process.

    Args:
        config: name of the config, in the side's own checkout.
        more: further keys of the config, and their values.
        program: words of Python that run `slim-rl`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        changes = [
            f"policy.model={side.model}",
            f"seed={seed}",
            f"train.steps={steps}",
            "train.learning_rate=1e-9",
            "train.games_per_step=16",
            "train.group_size=8",
            "train.eval_games=0",
            f"output_dir={scratch}/runs",
            *(f"{key}={value}" for key, value in (more or {}).items()),
        ]
        words = [word for change in changes for word in ("--set", change)]
        metrics = Path(scratch) / "runs" / config / "metrics.jsonl"
        ended: list[float] = []  # the times at which a step's line appeared
        with subprocess.Popen(
            [sys.executable, *program, "train", f"configs/{config}.yaml", *words],
            cwd=side.checkout,
            env=os.environ | {"PYTHONPATH": str(side.checkout), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as run:
            while run.poll() is None:
                time.sleep(0.02)
                lines = metrics.read_text().count("\n") if metrics.exists() else 0
                ended += [time.perf_counter()] * (lines - len(ended))
        logged = [json.loads(line) for line in metrics.read_text().splitlines()][1:]
        side.seconds += [end - start for start, end in itertools.pairwise(ended)]
        side.questions += [line["questions"] for line in logged]
        side.tokens += [line["completions/mean_length"] for line in logged]


if __name__ == "__main__":
    main()
