"""A model on these GPUs: the flags of its architecture, and which GPUs do what. All sizes are checked against each other before
anything starts; Megatron and Ray would only fail halfway.

Megatron cannot read an architecture from a checkpoint: it must be told on the command line, and slime keeps one bash array of
such flags a model in `scripts/models/*.sh`. The script is found by shape, never by name, so that a fine-tuned or renamed
checkpoint finds its own; what a checkpoint may set freely within a shape is taken from its config.json, which is also what slime
compares the flags with at start.
"""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl.backends.checkpoints import count_parameters
from slim_rl.backends.slime.settings import Settings
from slim_rl.errors import ConfigError, DataError

# config.json key -> Megatron flag. These make the shape: a script that differs in one of them is another model's.
_SHAPE = {
    "num_hidden_layers": "--num-layers",
    "hidden_size": "--hidden-size",
    "intermediate_size": "--ffn-hidden-size",
    "num_attention_heads": "--num-attention-heads",
    "num_key_value_heads": "--num-query-groups",
    "head_dim": "--kv-channels",
    "num_experts": "--num-experts",
}
# ... and these may differ between checkpoints of one shape; the checkpoint is right.
_FREE = {"rope_theta": "--rotary-base", "rms_norm_eps": "--norm-epsilon", "vocab_size": "--vocab-size"}
# Two families can share a shape; what tells their attention apart.
_FAMILY = {
    "qwen2": {"--add-qkv-bias": True, "--qk-layernorm": False},
    "qwen3": {"--add-qkv-bias": False, "--qk-layernorm": True},
}

_OWN_SCRIPTS = Path(__file__).parent / "models"  # of the small models that come with slim_rl

# Training packs whole dialogues; one that is longer than this is a pack by itself.
TOKENS_PER_GPU = 9216
GPU_BYTES = 80e9  # what the sizes below are made for
# Up to how many billions of parameters: GPUs that share one copy of the training weights, and GPUs of one SGLang engine, at most.
_SIZES = ((3, 1, 1), (10, 2, 1), (20, 4, 2), (math.inf, 8, 4))
# A mixture of experts has those of slime's run-qwen3-30B-A3B.sh, on whole nodes: tensor parallel, engine, experts; up to 40 billion.
_EXPERTS = (4, 8, 8)

Flags = dict[str, list[str]]  # flag -> its values


def find_architecture(shape: Mapping[str, Any], slime: Path) -> tuple[Flags, str]:
    """Megatron's flags for a config.json: those of slime's model script of that shape, or ours for a model that comes with slim_rl,
    corrected where a shape leaves them free; and what was found, such as "slime's qwen3-4B, with --rotary-base 5000000 from config.json".

    Raises:
        DataError: slime has no script of this shape, or `slime` has no model scripts.
    """
    folder = slime / "scripts" / "models"
    theirs = sorted(folder.glob("*.sh"))
    if not theirs:
        raise DataError(f"{folder} holds no model scripts; set SLIME_DIR to a checkout of slime.")
    named = {f"slim_rl's {script.stem}": script for script in sorted(_OWN_SCRIPTS.glob("*.sh"))}
    named |= {f"slime's {script.stem}": script for script in theirs}
    known = {name: _model_args(script) for name, script in named.items()}
    # the fewer flags need correcting, the nearer; a platform's variant of a script has the longer name
    fits = [(_corrections(flags, shape), name) for name, flags in known.items() if _fits(flags, shape)]
    if not fits:
        kind = str(shape.get("model_type", "unknown"))
        sizes = ", ".join(f"{key} {shape[key]}" for key in _SHAPE if shape.get(key) is not None)
        stems = [script.stem for script in theirs]
        near = [stem for stem in stems if stem.startswith(kind[:5])] or stems
        raise DataError(
            f"slime has no model script for this {kind} checkpoint ({sizes}). It has "
            f"{', '.join(near)}: use such a model, or write a script in {folder} after its nearest neighbour."
        )
    corrections, name = min(fits, key=lambda fit: (len(fit[0]), len(fit[1])))
    corrected = "; ".join(f"{flag} {value} from config.json" for flag, (value,) in corrections.items())
    return known[name] | corrections, name + (f", with {corrected}" if corrected else "")


def _model_args(script: Path) -> Flags:
    """The script's MODEL_ARGS, as bash reads them; empty if it fails."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MODEL_ARGS")}
    printed = 'source "$1" >/dev/null && printf "%s\\0" "${MODEL_ARGS[@]}"'
    command = ["bash", "-c", printed, "bash", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return {} if done.returncode else parse_flags(done.stdout.split("\0")[:-1])


def _fits(flags: Flags, shape: Mapping[str, Any]) -> bool:
    """Whether a script's flags describe this shape. What config.json leaves out, or the script, is no difference."""
    sizes = {flag: [str(shape[key])] for key, flag in _SHAPE.items() if shape.get(key) is not None}
    present = {
        "--num-layers": True,
        "--hidden-size": True,
        "--num-attention-heads": True,
        "--num-experts": bool(shape.get("num_experts")),
        **_FAMILY.get(str(shape.get("model_type")), {}),
    }
    if (tied := shape.get("tie_word_embeddings")) is not None:
        present["--untie-embeddings-and-output-weights"] = not tied
    same = all(flags.get(flag, size) == size for flag, size in sizes.items())
    return same and all((flag in flags) == there for flag, there in present.items())


def _corrections(flags: Flags, shape: Mapping[str, Any]) -> Flags:
    """The flags of `_FREE` whose values are not those of config.json, with the right ones."""
    # newer config.json files keep the rotary base among the rope parameters
    free = {key: shape.get(key) for key in _FREE} | dict(shape.get("rope_parameters") or {})
    found: Flags = {}
    for key, flag in _FREE.items():
        right = free[key]
        if right is not None and (flag not in flags or float(flags[flag][0]) != float(right)):
            found[flag] = [f"{right:g}" if key == "rms_norm_eps" else str(int(right))]
    return found


def parse_flags(line: Sequence[str]) -> Flags:
    """Words of a command line as flag -> values; of a repeated flag the last."""
    flags: Flags = {}
    values: list[str] = []
    for word in line:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            flags[flag] = values = [value] if equals else []
        else:
            values.append(word)
    return flags


@dataclass(frozen=True)
class Layout:
    """GPUs by what they do.

    Attributes:
        node_gpus: of one node.
        actor_nodes, actor_gpus: nodes that train, and GPUs on each of them.
        rollout_gpus: those that play, over all nodes; colocated, they are the same ones.
        tensor_parallel: GPUs that share one copy of the training weights.
        engine_gpus: GPUs of one SGLang engine.
        expert_parallel: GPUs over which the experts are spread; None for a dense model.
        offload_optimizer: keep Adam's states in host memory.
        parameters: of the model.
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
    colocate = settings.colocate == "1" if settings.colocate else settings.asynchronous == "0"
    nodes, gpus, rollout = (settings.num_nodes, node, settings.num_nodes * node) if colocate else _apart(settings, node)
    if not shape:  # of a model that could not be looked up: sized as a small one
        shape = {"num_key_value_heads": settings.tp or 1, "vocab_size": 0}
        expert_parallel = True
        settings = settings.model_copy(update={"tp": settings.tp or 1, "engine_gpus": settings.engine_gpus or 1})
    parameters = count_parameters(shape) if "hidden_size" in shape else 0
    # query groups are the coarsest grain by which Megatron splits the attention
    groups = int(shape.get("num_key_value_heads") or shape["num_attention_heads"])
    sized = settings.tp and settings.engine_gpus and expert_parallel  # by the user, as any mixture of experts can be
    usual_split, usual_engine, experts = (0, 0, None) if sized else _usual(shape, groups, gpus, rollout)
    split, engine = settings.tp or usual_split, settings.engine_gpus or usual_engine
    if groups % split:
        raise ConfigError(f"TP={split} cannot split {name}: it must divide its {groups} query groups.")
    if gpus % split:
        raise ConfigError(f"TP={split} does not divide the {gpus} GPUs of a node that train; choose a divisor.")
    if rollout % engine:
        raise ConfigError(f"ENGINE_GPUS={engine} does not divide the {rollout} GPUs of inference.")
    training = parameters, split, nodes * gpus, int(shape["vocab_size"])
    offload = bool(shape.get("num_experts")) or needs_offload(*training)
    return Layout(
        node_gpus=node,
        actor_nodes=nodes,
        actor_gpus=gpus,
        rollout_gpus=rollout,
        colocate=colocate,
        tensor_parallel=split,
        engine_gpus=engine,
        expert_parallel=experts,
        offload_optimizer=offload,
        parameters=parameters,
        memory=training_bytes(*training, offload),
    )


def _apart(settings: Settings, node: int) -> tuple[int, int, int]:
    """Nodes that train, GPUs on each, and GPUs that play beside them. Training has whole nodes, or a part of one."""
    total = settings.num_nodes * node
    rollout = settings.rollout_gpus or total // 2
    left = total - rollout
    nodes = max(left // node, 1)
    gpus = max(left, 0) // nodes
    if gpus < 1 or rollout < 1 or gpus > node or nodes * gpus != left:
        raise ConfigError(
            f"ROLLOUT_GPUS={rollout} leaves {left} of {total} GPUs for training; both sides need some, and training whole "
            f"nodes of {node} or a part of one. Choose another ROLLOUT_GPUS."
        )
    return nodes, gpus, rollout


def _usual(shape: Mapping[str, Any], groups: int, gpus: int, rollout: int) -> tuple[int, int, int | None]:
    """Tensor parallel, GPUs of an engine, and expert parallel of a model of this shape: divisors of its query `groups`, and of the `gpus`
    of a node that trains or of all that play.
    """
    billions = count_parameters(shape) / 1e9
    if shape.get("num_experts"):
        if billions > 40 or gpus % 8 or rollout % 8:
            raise DataError(
                f"This mixture of experts ({billions:.0f}B parameters) cannot be sized automatically: slime's own values are "
                "for 30B on whole nodes of 8 GPUs. Give TP, ENGINE_GPUS and --expert-model-parallel-size as in slime's example for it."
            )
        return _EXPERTS
    most_split, most_engine = next((split, engine) for limit, split, engine in _SIZES if billions < limit)

    def largest(most: int, total: int) -> int:
        return max(n for n in range(1, most + 1) if groups % n == 0 and total % n == 0)

    return largest(most_split, gpus), largest(most_engine, rollout), None


def training_bytes(parameters: int, split: int, gpus: int, vocabulary: int, offload: bool = False) -> float:
    """A rough need of GPU memory for one GPU in training, in bytes: bf16 weights and float32 gradients over `split` GPUs, Adam's
    states over all `gpus` that train, and the logits of one pack, which are the largest activation when layers are recomputed.
    """
    adam = 0.0 if offload else 12 * parameters / gpus
    logits = 3 * 4 * TOKENS_PER_GPU * vocabulary / split
    return 6 * parameters / split + adam + logits


def needs_offload(parameters: int, split: int, gpus: int, vocabulary: int) -> bool:
    """Whether Adam's states must live in host memory: with them, training would fill three quarters of a GPU."""
    return training_bytes(parameters, split, gpus, vocabulary) > 0.75 * GPU_BYTES
