"""The gradient of one step's dialogues: by slime and Megatron, and by plain torch, with weights of any size.

    PYTHONPATH=.:tools .venv/bin/python benchmarks/one_gradient.py configs/qwen_local.yaml --set policy.top_p=1

`tests/slime_cpu/test_one_gradient.py` is the same for a tiny model, with every loss and training reward. It needs slime's environment
(`make test-slime`), and for 0.5B weights about 20 GiB of memory.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from slime_cpu import sources
from slime_cpu.environment import environment
from transformers import AutoModelForCausalLM

from examples.grpo_by_hand import Batch, loss, make_batch, play
from slim_rl import RolloutWorker, load_config, load_rows
from slim_rl.config import Config
from slim_rl.policies.transformers import load_policy
from tests.slime_cpu.conftest import PYTHON

SETTINGS = ("train.loss=sequence", "train.kl_coef=0", "train.scale_rewards=false")
Gradient = dict[str, torch.Tensor]


def dialogues_of(config: Config) -> list[list[Any]]:
    """Plays the first step's games with the initial policy."""
    policy, chat = load_policy(config.policy)
    return play(RolloutWorker(config, chat, policy), policy, load_rows(config)[: config.train.games_per_step], 0)


def by_slime(config: Config, groups: list[list[Any]], folder: Path, tokens: int, dtype: str) -> Gradient:
    """Returns the gradient of slime's own actor, in slime's environment; `tokens`: of a pack."""
    torch.save([dialogue for group in groups for dialogue in group], folder / "batch")
    model, temperature = Path(config.policy.model).absolute(), f"policy.temperature={config.policy.temperature}"
    sizes = (f"train.games_per_step={len(groups)}", f"train.group_size={len(groups[0])}")
    arguments = {
        "folder": folder / "run",
        "model": model,
        "reference": model,
        "cells": {"game": ({}, folder / "batch")},
        "loss": config.train.loss,
        "kl_coef": config.train.kl_coef,
        "changes": [*SETTINGS, *sizes, temperature],
        "own": {"--max-tokens-per-gpu": tokens, "--sglang-dtype": dtype},
    }
    slime, megatron = sources.find()
    variables = environment(slime, megatron) | {"SLIME_DIR": str(slime), "MEGATRON_DIR": str(megatron)}
    wanted = json.dumps({"task": "gradients", "arguments": arguments, "output": str(folder / "out")}, default=str)
    command = [str(PYTHON), "-m", "tests.slime_cpu.server"]
    said = subprocess.run(command, input=wanted + "\n", env=variables, stdout=subprocess.PIPE, text=True, check=True)
    if said.stdout.split() != ["ready", "ok"]:
        raise SystemExit((folder / "out.log").read_text(encoding="utf-8")[-3000:])
    found: Gradient = torch.load(folder / "out", weights_only=False)["game"]
    return found


def by_hand(config: Config, groups: list[list[Any]], dtype: str) -> Gradient:
    """Returns the gradient of `examples/grpo_by_hand.py`, two dialogues at a time."""
    model = AutoModelForCausalLM.from_pretrained(config.policy.model, dtype=getattr(torch, dtype))
    batch = make_batch(groups, config)
    for rows in torch.arange(len(batch.ids)).split(2):
        loss(model, None, Batch(*(tensor[rows] for tensor in batch)), config).backward()
    return {name: weight.grad.float() for name, weight in model.named_parameters()}


def main() -> None:
    """Prints, per dtype of plain torch, the norm of its difference to slime's gradient over slime's norm."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("config", type=Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--tokens", type=int, default=700, help="of a pack in Megatron")
    parser.add_argument("--megatron", default="float32", choices=["float32", "bfloat16"], help="dtype of Megatron")
    parser.add_argument("--groups", type=int, help="number of groups to keep, those whose rewards differ first")
    parser.add_argument("--dtypes", nargs="+", default=["float32"], choices=["float32", "bfloat16"])
    options = parser.parse_args()
    config = load_config(options.config, [*SETTINGS, *options.set])
    groups = dialogues_of(config)
    groups = sorted(groups, key=lambda group: len({dialogue.reward for dialogue in group}) == 1)[: options.groups]
    played = [dialogue for group in groups for dialogue in group]
    rewards = [len({dialogue.reward for dialogue in group}) > 1 for group in groups]
    print(
        f"{len(played)} dialogues in {len(groups)} groups, {sum(rewards)} of them with rewards that differ", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        theirs = by_slime(config, groups, Path(folder), options.tokens, options.megatron)
        norm = sum(float(value.double().square().sum()) for value in theirs.values()) ** 0.5
        print(
            f"slime in {options.megatron}: norm {norm:.6f}, {time.perf_counter() - began:.0f} s with imports",
            flush=True,
        )
    for dtype in options.dtypes:
        began, ours = time.perf_counter(), by_hand(config, groups, dtype)
        apart = {name: float((ours[name] - theirs[name]).double().norm()) for name in theirs}
        total = sum(value**2 for value in apart.values()) ** 0.5
        most = max(apart, key=lambda name: apart[name] / (float(theirs[name].norm()) or 1.0))
        share = apart[most] / (float(theirs[most].norm()) or 1.0)
        print(f"{dtype}: {total / norm:.1e} of it apart, at most {share:.1e} in one weight ({most}), ", end="")
        print(f"{time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
