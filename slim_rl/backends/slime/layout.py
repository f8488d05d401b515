"""Which GPUs do what. All sizes are checked against each other before anything starts; Megatron and Ray would only fail halfway."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slim_rl.backends.checkpoints import count_parameters
from slim_rl.backends.gpus import nvidia_smi
from slim_rl.backends.slime.model import Flags, Sizing, can_split, needs_offload, size_up, training_bytes
from slim_rl.backends.slime.settings import Settings
from slim_rl.errors import ConfigError


@dataclass(frozen=True)
class Layout:
    """GPUs by what they do.

    Attributes:
        node_gpus: of one node.
        actor_nodes, actor_gpus: nodes that train, and GPUs on each of them.
        rollout_gpus: those that play, over all nodes; colocated, they are the same ones.
        tensor_parallel, engine_gpus, expert_parallel: see `model.Sizing`.
        offload_optimizer: keep Adam's states in host memory.
        memory: what training needs of a GPU, roughly, in bytes.
    """

    node_gpus: int
    actor_nodes: int
    actor_gpus: int
    rollout_gpus: int
    colocate: bool
    tensor_parallel: int
    engine_gpus: int
    expert_parallel: int | None
    offload_optimizer: bool
    parameters: int
    memory: float

    @property
    def trainers(self) -> int:
        """GPUs that train, over all nodes."""
        return self.actor_nodes * self.actor_gpus

    @property
    def engines(self) -> int:
        return self.rollout_gpus // self.engine_gpus


def count_gpus() -> int:
    """GPUs of this machine: as many as CUDA_VISIBLE_DEVICES names, or else as nvidia-smi lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return sum(1 for gpu in visible.split(",") if gpu.strip())
    return sum(line.startswith("GPU") for line in nvidia_smi("-L").splitlines())


def has_nvlink() -> bool:
    """Whether nvidia-smi's topology shows an NVLink (NV4, NV18, …)."""
    return any(word[:2] == "NV" and word[2:].isdigit() for word in nvidia_smi("topo", "-m").split())


def lay_out(
    settings: Settings, shape: Mapping[str, Any], name: str, here: int, expert_parallel: bool = False
) -> Layout:
    """The layout of a run.

    Args:
        shape: the checkpoint's config.json.
        name: what to call the checkpoint in a message.
        here: GPUs of this machine; 0 stands for a node of eight.
        expert_parallel: the user gives --expert-model-parallel-size himself.

    Raises:
        SlimError: the GPUs cannot be divided as asked.
    """
    node = settings.num_gpus or here or 8
    total = settings.num_nodes * node
    colocate = settings.colocate == "1" if settings.colocate else settings.asynchronous == "0"
    if colocate:
        rollout, nodes, gpus = total, settings.num_nodes, node
    else:
        rollout = settings.rollout_gpus or total // 2
        left = total - rollout
        nodes = max(left // node, 1)
        gpus = max(left, 0) // nodes
        if gpus < 1 or rollout < 1 or nodes * gpus != left:
            raise ConfigError(
                f"ROLLOUT_GPUS={rollout} leaves {left} of {total} GPUs for training; both sides need some, and training whole "
                f"nodes of {node} or a part of one. Choose another ROLLOUT_GPUS."
            )
    if settings.tp and settings.engine_gpus and expert_parallel:
        size = Sizing(count_parameters(shape), settings.tp, settings.engine_gpus)
    else:
        size = size_up(shape, gpus, rollout)
    split = settings.tp or size.tensor_parallel
    engine = settings.engine_gpus or size.engine_gpus
    if not can_split(shape, split):
        groups = shape.get("num_key_value_heads", shape["num_attention_heads"])
        raise ConfigError(f"TP={split} cannot split {name}: it must divide its {groups} query groups.")
    if gpus % split:
        raise ConfigError(f"TP={split} does not divide the {gpus} GPUs of a node that train; choose a divisor.")
    if rollout % engine:
        raise ConfigError(f"ENGINE_GPUS={engine} does not divide the {rollout} GPUs of inference.")
    training = size.parameters, split, nodes * gpus, int(shape["vocab_size"])
    offload = bool(shape.get("num_experts")) or needs_offload(*training)
    return Layout(
        node_gpus=node,
        actor_nodes=nodes,
        actor_gpus=gpus,
        rollout_gpus=rollout,
        colocate=colocate,
        tensor_parallel=split,
        engine_gpus=engine,
        expert_parallel=size.expert_parallel,
        offload_optimizer=offload,
        parameters=size.parameters,
        memory=training_bytes(*training, offload),
    )


def check_batch(flags: Flags) -> None:
    """What Megatron and slime ask of the batch, on the flags as they will be given (the user's included).

    Raises:
        ConfigError: the batch does not divide into micro-batches over the copies of the model, or dialogues would be thrown away.
    """

    def number(flag: str, usual: int = 1) -> int:
        words = flags.get(flag) or [str(usual)]
        if not words[0].isascii() or not words[0].isdigit() or int(words[0]) < 1:
            raise ConfigError(f"{flag} is {words[0]!r}; it must be a whole number of at least 1.")
        return int(words[0])

    gpus = number("--actor-num-nodes") * number("--actor-num-gpus-per-node")
    split = 1
    for part in ("tensor", "pipeline", "context"):
        split *= number(f"--{part}{'' if part == 'context' else '-model'}-parallel-size")
    if gpus % split:
        raise ConfigError(
            f"One copy of the model takes {split} GPUs (tensor × pipeline × context), which do not divide {gpus}."
        )
    experts = number("--expert-model-parallel-size") * number("--expert-tensor-parallel-size")
    experts *= number("--pipeline-model-parallel-size")
    if gpus % experts:
        raise ConfigError(f"The experts are spread over {experts} GPUs, which do not divide the {gpus} that train.")
    copies = gpus // split
    games, group = number("--rollout-batch-size"), number("--n-samples-per-prompt")
    steps = number("--num-steps-per-rollout")
    batch = number("--global-batch-size", games * group // steps)
    step = copies * number("--micro-batch-size")
    if batch % step:
        grain = step * steps // math.gcd(step * steps, group)  # games that divide
        fits = [n for n in (games // grain * grain, (games // grain + 1) * grain) if n]
        raise ConfigError(
            f"A batch of {batch} dialogues does not divide over {copies} copies of the model ({gpus} GPUs, {split} a copy) in "
            f"micro-batches of {step // copies}: set train.games_per_step to {' or '.join(map(str, fits))}, or choose "
            "other GPUs or TP."
        )
    if games * group % batch:
        raise ConfigError(
            f"A rollout of {games} × {group} = {games * group} dialogues is not a multiple of --global-batch-size {batch}, so "
            "slime would drop the rest. Choose a divisor."
        )
