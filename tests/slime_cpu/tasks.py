"""What is asked of slime and Megatron, each in a fork of the server that has imported them: see `tests.slime_cpu.server`.

slime's own actor runs, in this process instead of one of Ray's: `ray.get` and `ray.put` hand on what they are given.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import ray
import torch
from slime.backends.megatron_utils.actor import MegatronTrainRayActor
from slime.backends.megatron_utils.megatron_to_hf import convert_to_hf
from slime.backends.megatron_utils.update_weight.common import named_params_and_buffers
from slime.ray.rollout import RolloutManager
from slime.utils.arguments import parse_args

from slim_rl.backends.slime.arguments import words
from slim_rl.backends.slime.cluster import find_checkouts
from slim_rl.backends.slime.cpu import flags
from slim_rl.backends.slime.launch import plan, read_config
from slim_rl.backends.slime.settings import Settings
from slim_rl.config import parse_config
from slim_rl.keys import values
from slim_rl.rollout import normalize_rewards
from tests.backends.paid_batch import made_samples, run

_HOOK = "--custom-megatron-before-train-step-hook-path"


def arguments(folder: str, overrides: Sequence[str] = (), own: Mapping[str, Any] = {}) -> Namespace:
    """slime's arguments of a run of `configs/matching_local.yaml` in `folder`, as our launch words them."""
    settings = Settings(config=Path("configs/matching_local.yaml"), save_dir=folder, num_gpus=2, colocate="0")
    settings = settings.model_copy(update={"eval_interval": 0})
    changes = ["policy.top_p=1.0", f"data.train={folder}/games.jsonl", *overrides]
    config, _ = read_config(settings, changes)
    given = words({**flags.MEGATRON, **own})
    job, line, _ = plan(
        settings,
        config,
        find_checkouts(settings.model_copy(update={"slime_dir": os.environ["SLIME_DIR"]}), False),
        given,
        2,
        False,
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    job.config.write(job.folder / "config.yaml")
    sys.argv = ["train.py", *line]
    args: Namespace = parse_args()
    return args


def actor_of(args: Namespace) -> MegatronTrainRayActor:
    """slime's Megatron actor, with the weights of `args.load` and, where there is a KL term, of `args.ref_load`."""
    ray.get = ray.put = lambda value, **_: value
    ray.get_gpu_ids = lambda: [0]
    actor = MegatronTrainRayActor(1, 0, None, None)
    actor.init(args, "actor", with_ref=args.use_kl_loss)
    actor._switch_model("actor")  # as our driver does
    return actor


def by_name(args: Namespace, pairs: Any) -> dict[str, torch.Tensor]:
    """Megatron's weights, or what belongs to each of them, under Hugging Face's names."""
    return {
        name: tensor.detach().clone()
        for own, value in pairs
        for name, tensor in convert_to_hf(args, "qwen3", own, value)
    }


def logits(folder: str, model: str, sequences: list[list[int]]) -> dict[str, Any]:
    """What Megatron computes from a Hugging Face checkpoint for packed sequences; and its weights, converted back."""
    from megatron.core.packed_seq_params import PackedSeqParams

    args = arguments(folder, [f"policy.model={model}"], {"--load-debug-rollout-data": "none"})
    actor = actor_of(args)
    bounds = torch.tensor([0, *map(len, sequences)]).cumsum(0).int()
    longest = max(map(len, sequences))
    packed = PackedSeqParams("thd", bounds, bounds, max_seqlen_q=longest, max_seqlen_kv=longest)
    ids = torch.tensor([[token for sequence in sequences for token in sequence]])
    with torch.no_grad():
        found = actor.model[0](
            input_ids=ids, position_ids=None, attention_mask=None, labels=None, packed_seq_params=packed
        )
    spans = [slice(*span) for span in pairwise(bounds)]
    weights = by_name(args, named_params_and_buffers(args, actor.model))
    return {"logits": [found[0, span, : args.vocab_size] for span in spans], "weights": weights}


def gradients(
    folder: str, model: str, reference: str, cells: dict[str, tuple[str, str]], loss: str, kl_coef: float
) -> dict[str, Any]:
    """The gradients of batches of dialogues by slime and Megatron: by slime's own functions, from samples on.

    Args:
        model: the weights that are trained, another checkpoint than the `reference`, so that the KL term has a gradient.
        cells: name -> the control that says what is paid, and a file of dialogues with the logprobs that the model gives them.
    """
    changes = [
        f"policy.model={reference}",
        f"train.loss={loss}",
        f"train.kl_coef={kl_coef}",
        "train.scale_rewards=false",
    ]
    changes += ["train.games_per_step=2", "train.group_size=4"]
    args = arguments(folder, changes, {"--load-debug-rollout-data": "none", _HOOK: f"{__name__}.keep_gradient"})
    args.load = model
    actor, found = actor_of(args), {}
    for name, (control, batch) in cells.items():
        samples = made_samples(torch.load(batch, weights_only=False))
        args.slim_rl = run(control) | {"train": {**run(control)["train"], "scale_rewards": False}}
        args.custom_advantage_function_path = values(parse_config(args.slim_rl), "slime")[
            "--custom-advantage-function-path"
        ]
        manager = object.__new__(RolloutManager.__ray_metadata__.modified_class)
        manager.args, manager.custom_reward_post_process_func = args, normalize_rewards
        manager.custom_convert_samples_to_train_data_func = None
        manager.train_parallel_config = actor.train_parallel_config
        boxes = manager._split_train_data_by_dp(manager._convert_samples_to_train_data(samples))
        actor.train(0, boxes)
        found[name] = KEPT.pop()
    return found


KEPT: list[dict[str, torch.Tensor]] = []


def keep_gradient(args: Namespace, rollout_id: int, step: int, model: Any, optimizer: Any, scheduler: Any) -> None:
    """slime's ``--custom-megatron-before-train-step-hook-path``: in place of the optimizer's step, keeps what it would step by."""

    def kept() -> tuple[bool, float, None]:
        KEPT.append(by_name(args, ((name, weight.main_grad) for name, weight in named_params_and_buffers(args, model))))
        return True, 0.0, None

    optimizer.step = kept
