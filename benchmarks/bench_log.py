# ruff: noqa: E402  (the repository must be on the path first)
"""Time between a slime rollout and its training step: annotating and logging the dialogues.

    python benchmarks/bench_log.py [--dialogues 4096] [--rollout 60]

Dialogues of 12 turns on 8×8 boards end evenly over a rollout, as they do on a cluster. `at the end`: none is annotated when the
rollout is over, and the log does it. `as they end`: a thread annotates each one when it ends, as the hook has it. Both then
run the hook's own `log_rollout`. slime's own classes are used: SLIME_DIR names its checkout.
"""

import argparse
import asyncio
import copy
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from bench_questions import dialogue

from slim_rl.dialogue.log import annotate_beside
from slim_rl.dialogue.record import Dialogue
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.reading.masking import mask
from slim_rl.games.matching.reading.reader import _read
from slim_rl.games.matching.state import MatchingSettings
from tests.backends.slime_setup import Sample, make_args

from slim_rl.backends.slime.hook import RECORD  # isort: skip
from slim_rl.backends.slime.log import log_rollout  # isort: skip


def make_dialogues(number: int) -> list[Dialogue]:
    rng, made = random.Random(0), []
    for index, state in enumerate(generate_games(number, MatchingSettings(), seed=1)):
        one = dialogue(rng, state, 12)
        one.id, one.prompt_ids, one.response_ids = f"train/{index}", [1] * 900, [2] * 600
        one.loss_mask, one.logprobs = [1, 0] * 300, [-0.5, 0.0] * 300
        made.append(one)
    return made


async def end(dialogues: list[Dialogue], rollout: float) -> float:
    """Lets the dialogues end over `rollout` seconds, and annotates each. Returns the seconds waited after the last one ended."""
    start, waiting = time.monotonic(), []
    for index, one in enumerate(dialogues):
        await asyncio.sleep(max(0.0, start + rollout * index / len(dialogues) - time.monotonic()))
        waiting.append(asyncio.create_task(annotate_beside([one])))
    ended = time.monotonic()
    await asyncio.gather(*waiting)
    return time.monotonic() - ended


def samples(dialogues: list[Dialogue]) -> list[Any]:
    made = []
    for one in dialogues:
        sample = Sample(tokens=one.prompt_ids + one.response_ids, response_length=len(one.response_ids), reward=0.5)
        sample.loss_mask, sample.rollout_log_probs = one.loss_mask, one.logprobs
        sample.metadata = {RECORD: one.to_dict(tokens=False)}
        made.append(sample)
    return made


def log(folder: str, name: str, dialogues: list[Dialogue]) -> tuple[float, float]:
    """Returns seconds and processor seconds of the hook's log function."""
    args = make_args(Path(folder), 9, Path(folder) / name)
    made = samples(dialogues)
    wall, cpu = time.monotonic(), time.process_time()
    log_rollout(0, args, made, {}, 1.0)
    return time.monotonic() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dialogues", type=int, default=4096)
    parser.add_argument("--rollout", type=float, default=60.0, help="seconds over which they end")
    options = parser.parse_args()
    played = make_dialogues(options.dialogues)
    later = copy.deepcopy(played)
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = log(folder, "end", played)
        each = 1e3 * cpu / len(played)
        print(
            f"annotated at the end:   {wall:6.2f} s before training starts ({cpu:.2f} s of processor, {each:.2f} ms each)"
        )
        _read.cache_clear()
        mask.cache_clear()
        before = time.process_time()
        waited = asyncio.run(end(later, options.rollout))
        submitted = 1e3 * (time.process_time() - before) / len(later)
        wall, cpu = log(folder, "as", later)
        each = 1e3 * cpu / len(later)
        print(
            f"annotated as they end:  {waited + wall:6.2f} s before training starts ({waited:.2f} s for the last ones; {cpu:.2f} s "
            f"of processor, {each:.2f} ms each); {submitted:.2f} ms of processor each during the rollout"
        )
        logs = [(Path(folder) / name / "logs" / "train.jsonl").read_bytes() for name in ("end", "as")]
        print("the two logs are", "equal" if logs[0] == logs[1] else "NOT equal")


if __name__ == "__main__":
    main()
