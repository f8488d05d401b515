"""Which of slime's model scripts describes a checkpoint, and how many GPUs the model wants.

Megatron cannot read an architecture from a checkpoint: it must be told on the command line, and slime keeps one bash array of
such flags a model in `scripts/models/*.sh`. The script is found by shape, never by name, so that a fine-tuned or renamed
checkpoint finds its own; what a checkpoint may set freely within a shape (rotary base, norm epsilon, vocabulary) is taken from
its config.json, which is also what slime compares the flags with at start.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl.backends.checkpoints import count_parameters
from slim_rl.errors import DataError

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

# Families whose Hugging Face checkpoints slime reads into Megatron itself, as its own tests do; others are converted first.
_READ_BY_SLIME = ("qwen2", "qwen3", "llama")

# Training packs whole dialogues; one that is longer than this is a pack by itself.
TOKENS_PER_GPU = 9216

Flags = dict[str, list[str]]  # flag -> its values


@dataclass(frozen=True)
class Architecture:
    """A checkpoint's Megatron flags.

    Attributes:
        script: the model script of slime they come from.
        flags: for Megatron, corrected by config.json.
        corrected: the flags that config.json changed, as sentences.
    """

    script: str
    flags: Flags
    corrected: list[str]


@dataclass(frozen=True)
class Sizing:
    """What a model of this size asks of the GPUs, by default.

    Attributes:
        parameters: their number, from the shape.
        tensor_parallel: GPUs that share one copy of the training weights.
        engine_gpus: GPUs of one SGLang engine.
        expert_parallel: GPUs over which the experts are spread; None for a dense model.
    """

    parameters: int
    tensor_parallel: int
    engine_gpus: int
    expert_parallel: int | None = None


def find_architecture(config: Mapping[str, Any], slime_dir: str | Path) -> Architecture:
    """The flags of the model script whose shape is that of `config` (a config.json).

    Raises:
        DataError: slime has no script of this shape, or `slime_dir` has no model scripts.
    """
    folder = Path(slime_dir) / "scripts" / "models"
    scripts = sorted(folder.glob("*.sh"))
    if not scripts:
        raise DataError(f"{folder} holds no model scripts; set SLIME_DIR to a checkout of slime.")
    fits = [(script, flags) for script in scripts if _fits(flags := _model_args(script), config)]
    if not fits:
        shape = ", ".join(f"{key} {config[key]}" for key in _SHAPE if config.get(key) is not None)
        family = str(config.get("model_type", ""))[:5]
        known = [script.stem for script in scripts if script.stem.startswith(family)] or [
            script.stem for script in scripts
        ]
        raise DataError(
            f"slime has no model script for this {config.get('model_type', 'unknown')} checkpoint ({shape}). It has "
            f"{', '.join(known)}: take such a model, or write a script in {folder} after its nearest neighbour."
        )
    # the fewer flags need correcting, the nearer; a platform's variant of a script has the longer name
    script, flags = min(fits, key=lambda fit: (len(_differences(fit[1], config)), len(fit[0].name)))
    differences = _differences(flags, config)
    corrected = [f"{flag} {value} from config.json" for flag, (value,) in differences.items()]
    return Architecture(script.stem, flags | differences, corrected)


def reads_directly(model: Path, config: Mapping[str, Any], slime_dir: Path | None) -> bool:
    """Whether slime starts from this Hugging Face checkpoint without a conversion. With no `slime_dir`: whether today's would."""
    if slime_dir is not None and not (slime_dir / "slime/backends/megatron_utils/hf_to_megatron").is_dir():
        return False
    only_pickles = any(model.glob("*.bin")) and not any(model.glob("*.safetensors"))
    return config.get("model_type") in _READ_BY_SLIME and not only_pickles


def size_up(config: Mapping[str, Any], gpus: int, rollout_gpus: int) -> Sizing:
    """Parallelism for a model of this shape, on GPUs with 80 GB each.

    Args:
        gpus: those of a node that train; tensor parallelism divides them.
        rollout_gpus: those that play, over all nodes; engines divide them.

    Raises:
        DataError: a mixture of experts that is larger than slime's own example, or on other than whole nodes of 8 GPUs.
    """
    parameters = count_parameters(config)
    billions = parameters / 1e9
    if config.get("num_experts"):
        if billions > 40 or gpus % 8 or rollout_gpus % 8:
            raise DataError(
                f"This mixture of experts ({billions:.0f}B parameters) cannot be sized automatically: slime's own values are "
                "for 30B on whole nodes of 8 GPUs. Give TP, ENGINE_GPUS and --expert-model-parallel-size after slime's example for it."
            )
        return Sizing(parameters, 4, 8, expert_parallel=8)  # as slime's run-qwen3-30B-A3B.sh
    if billions < 3:
        wanted, engine = 1, 1
    elif billions < 10:
        wanted, engine = 2, 1
    elif billions < 20:
        wanted, engine = 4, 2
    else:
        wanted, engine = 8, 4
    splits = [n for n in range(1, wanted + 1) if can_split(config, n) and gpus % n == 0]
    engines = [n for n in range(1, engine + 1) if can_split(config, n) and rollout_gpus % n == 0]
    return Sizing(parameters, max(splits), max(engines))


def training_bytes(parameters: int, split: int, gpus: int, vocabulary: int, offload: bool = False) -> float:
    """A rough need of GPU memory for one GPU in training, in bytes: bf16 weights and float32 gradients over `split` GPUs, Adam's
    states over all `gpus` that train, and the logits of one pack, which are the largest activation when layers are recomputed.
    """
    adam = 0.0 if offload else 12 * parameters / gpus
    logits = 3 * 4 * TOKENS_PER_GPU * vocabulary / split
    return 6 * parameters / split + adam + logits


def needs_offload(parameters: int, split: int, gpus: int, vocabulary: int) -> bool:
    """Whether Adam's states must live in host memory: with them, training would fill three quarters of GPUs of 80 GB."""
    return training_bytes(parameters, split, gpus, vocabulary) > 0.75 * 80e9


def can_split(config: Mapping[str, Any], tensor_parallel: int) -> bool:
    """Whether Megatron can split the attention over this many GPUs: query groups are the coarsest grain."""
    heads = int(config["num_attention_heads"])
    groups = int(config.get("num_key_value_heads") or heads)
    return heads % tensor_parallel == 0 and groups % tensor_parallel == 0


def _model_args(script: Path) -> Flags:
    """The script's MODEL_ARGS, as bash reads them; empty if it fails."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MODEL_ARGS")}
    done = subprocess.run(
        ["bash", "-c", 'source "$1" >/dev/null && printf "%s\\0" "${MODEL_ARGS[@]}"', "bash", str(script)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    return parse_flags(done.stdout.split("\0")[:-1]) if done.returncode == 0 else {}


def parse_flags(words: Sequence[str]) -> Flags:
    """Words of a command line as flag -> values; of a repeated flag the last."""
    flags: Flags = {}
    values: list[str] = []
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            values = [value] if equals else []
            flags[flag] = values
        else:
            values.append(word)
    return flags


def _value(config: Mapping[str, Any], key: str) -> Any:
    if key == "rope_theta":  # newer config.json files keep it among the rope parameters
        rope = config.get("rope_parameters") or {}
        return rope.get("rope_theta", config.get("rope_theta"))
    return config.get(key)


def _fits(flags: Flags, config: Mapping[str, Any]) -> bool:
    if ("--num-experts" in flags) != bool(config.get("num_experts")):
        return False
    for key, flag in _SHAPE.items():
        wanted = _value(config, key)
        if wanted is not None and flag in flags and flags[flag] != [str(wanted)]:
            return False
    if any(flag not in flags for flag in ("--num-layers", "--hidden-size", "--num-attention-heads")):
        return False
    tied = config.get("tie_word_embeddings")
    if tied is not None and tied == ("--untie-embeddings-and-output-weights" in flags):
        return False
    family = _FAMILY.get(str(config.get("model_type")), {})
    return all((flag in flags) == present for flag, present in family.items())


def _differences(flags: Flags, config: Mapping[str, Any]) -> Flags:
    """The flags of `_FREE` whose values are not those of config.json, with the right ones."""
    found: Flags = {}
    for key, flag in _FREE.items():
        wanted = _value(config, key)
        if wanted is not None and (flag not in flags or float(flags[flag][0]) != float(wanted)):
            found[flag] = [f"{wanted:g}" if isinstance(wanted, float) and key == "rms_norm_eps" else str(int(wanted))]
    return found
