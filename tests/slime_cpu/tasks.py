"""What is asked of slime and Megatron, each in a fork of the server that has imported them: see `tests.slime_cpu.server`.

slime's own actor runs, in this process instead of one of Ray's: `ray.get` and `ray.put` hand on what they are given.
"""

import multiprocessing
import os
import shlex
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import ray
import torch
from megatron.core.packed_seq_params import PackedSeqParams
from slime.backends.megatron_utils.actor import MegatronTrainRayActor
from slime.backends.megatron_utils.megatron_to_hf import convert_to_hf
from slime.backends.megatron_utils.update_weight.common import named_params_and_buffers
from slime.ray.rollout import RolloutManager
from slime.utils.arguments import parse_args
from slime_cpu import flags
from slime_cpu.environment import of_the_script

from slim_rl.backends.slime.flags import TURN_ADVANTAGES, words
from slim_rl.backends.slime.launch import SCRIPT
from slim_rl.config import load_config, parse_config
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.files import read_object
from slim_rl.rollout import normalize_rewards
from tests.backends.paid_batch import made_samples

_HOOK = "--custom-megatron-before-train-step-hook-path"
_NO_ENGINE = {"--load-debug-rollout-data": "none"}  # slime then trains alone


def arguments(folder: str, overrides: Sequence[str], own: Mapping[str, Any], ranks: int = 1) -> Namespace:
    """Returns slime's arguments of a run of `configs/matching_local.yaml` in `folder`, by the launch script's dry run."""
    config = load_config(
        "configs/matching_local.yaml", [*overrides, "policy.top_p=1.0", f"data.train={folder}/games.jsonl"]
    )
    config = config.changed(name=Path(folder).name, data={"eval": None}, train={"backend": "slime"})
    config = config.changed(arm=config.arm_name)  # as the launch writes it
    config.write(Path(folder) / "config.yaml")
    variables = of_the_script(Path(os.environ["SLIME_DIR"]), Path(os.environ["MEGATRON_DIR"]))
    variables |= {"CONFIG": f"{folder}/config.yaml", "MODEL": config.policy.model, "SAVE_DIR": folder}
    variables |= {"NUM_GPUS": str(ranks + 1), "ROLLOUT_GPUS": "1", "PYTHON": sys.executable}
    given = words({**flags.MEGATRON, **_NO_ENGINE, **own})
    done = subprocess.run(
        ["bash", str(SCRIPT), "--dry-run", *given], env=variables, stdout=subprocess.PIPE, text=True, check=True
    )
    sys.argv = shlex.split(done.stdout.replace("\\\n", " "))[4:]
    args: Namespace = parse_args()
    return args


def actor_of(args: Namespace, rank: int = 0, port: int = 0) -> MegatronTrainRayActor:
    """slime's Megatron actor, with the weights of `args.load` and, where there is a KL term, of `args.ref_load`."""
    ray.get = ray.put = lambda value, **_: value
    ray.get_gpu_ids = lambda: [rank]
    actor = MegatronTrainRayActor(args.actor_num_gpus_per_node, rank, "127.0.0.1" if port else None, port)
    actor.init(args, "actor", with_ref=args.use_kl_loss)
    actor._switch_model("actor")  # as our driver does
    return actor


def by_name(args: Namespace, pairs: Any) -> dict[str, torch.Tensor]:
    """Megatron's weights, or what belongs to each of them, under Hugging Face's names."""
    family = read_object(Path(args.hf_checkpoint) / "config.json")["model_type"]
    converted = (convert_to_hf(args, family, own, value) for own, value in pairs)
    return {name: tensor.detach().clone() for parts in converted for name, tensor in parts}


def logits(folder: str, model: str, sequences: list[list[int]]) -> dict[str, Any]:
    """What Megatron computes from a Hugging Face checkpoint for packed sequences; and its weights, converted back."""
    args = arguments(folder, [f"policy.model={model}"], {})
    actor, given = actor_of(args), dict.fromkeys(("position_ids", "attention_mask", "labels"))
    bounds, longest = torch.tensor([0, *map(len, sequences)]).cumsum(0).int(), max(map(len, sequences))
    packed = PackedSeqParams("thd", bounds, bounds, max_seqlen_q=longest, max_seqlen_kv=longest)
    ids = torch.tensor([[token for sequence in sequences for token in sequence]])
    with torch.no_grad():
        found = actor.model[0](input_ids=ids, packed_seq_params=packed, **given)
    spans = [slice(*span) for span in pairwise(bounds)]
    weights = by_name(args, named_params_and_buffers(args, actor.model))
    return {"logits": [found[0, span, : args.vocab_size] for span in spans], "weights": weights}


def gradients(
    folder: str,
    model: str,
    reference: str,
    cells: dict[str, tuple[dict[str, Any], str]],
    loss: str,
    kl_coef: float,
    ranks: int = 1,
    changes: Sequence[str] = ("train.games_per_step=2", "train.group_size=4", "train.scale_rewards=false"),
    own: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The gradients of batches of dialogues by slime and Megatron: by slime's own functions, from samples on.

    Args:
        model: the weights that are trained, another checkpoint than the `reference`, so that the KL term has a gradient.
        cells: name -> the config that says what is paid, and a file of dialogues with the logprobs that the model gives them.
        ranks: processes that share a batch, each with a copy of the model.
        changes, own: of the config, such as the size of a batch; and flags of slime's.
    """
    changes = [*changes, f"policy.model={reference}", f"train.loss={loss}", f"train.kl_coef={kl_coef}"]
    args = arguments(folder, changes, {_HOOK: f"{__name__}.keep_gradient", **(own or {})}, ranks)
    args.load, port = model, 0
    args.sglang_dtype = (own or {}).get("--sglang-dtype")  # which slime does not parse where it only trains
    if ranks > 1:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    fork = multiprocessing.get_context("fork")
    others = [fork.Process(target=_gradients, args=(args, cells, rank, port)) for rank in range(1, ranks)]
    for other in others:
        other.start()
    found = _gradients(args, cells, 0, port)
    for other in others:
        other.join()
    return found


def _gradients(args: Namespace, cells: dict[str, tuple[dict[str, Any], str]], rank: int, port: int) -> dict[str, Any]:
    actor = actor_of(args, rank, port)
    for args.slim_rl, batch in cells.values():
        config = parse_config(args.slim_rl)
        samples = made_samples(torch.load(batch, weights_only=False), config.selfplay)
        args.custom_advantage_function_path = TURN_ADVANTAGES if make_training_reward(config).by_turn else None
        manager = object.__new__(RolloutManager.__ray_metadata__.modified_class)
        manager.args, manager.custom_reward_post_process_func = args, normalize_rewards
        manager.custom_convert_samples_to_train_data_func = None
        manager.train_parallel_config = actor.train_parallel_config
        actor.train(0, manager._split_train_data_by_dp(manager._convert_samples_to_train_data(samples)))
    return dict(zip(cells, KEPT, strict=True))


KEPT: list[dict[str, torch.Tensor]] = []


def keep_gradient(args: Namespace, rollout_id: int, step: int, model: Any, optimizer: Any, scheduler: Any) -> None:
    """slime's ``--custom-megatron-before-train-step-hook-path``: in place of the optimizer's step, keeps what it would step by."""

    def kept() -> tuple[bool, float, None]:
        for bucket in (bucket for part in model for buffer in part.buffers for bucket in buffer.buckets):
            own = bucket.grad_data.chunk(args.world_size)[args.rank]  # each rank has the sum of its own share
            torch.distributed.all_gather_into_tensor(bucket.grad_data, own.clone())
        KEPT.append(by_name(args, ((name, weight.main_grad) for name, weight in named_params_and_buffers(args, model))))
        return True, 0.0, None

    optimizer.step = kept
