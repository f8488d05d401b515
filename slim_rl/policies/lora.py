"""LoRA adapters (Hu et al. 2021), as `train.lora` describes them.

Invariant: the merged model computes what the adapted one computed, up to the rounding of its weights; in bfloat16 small updates are lost.
An adapter on a weight that two layers share, as tied embeddings do, changes one of the layers in training and both once it is merged: it is
refused.
"""

from collections.abc import Collection
from typing import Any

from peft import LoraConfig

from slim_rl.config.sections import LoraSection
from slim_rl.errors import ConfigError, did_you_mean


def lora_config(lora: LoraSection) -> LoraConfig:
    """Returns peft's settings of a causal language model's adapters."""
    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        task_type="CAUSAL_LM",
    )


def adapted_layers(adapters: Any) -> Collection[str] | str:
    """Returns the names of the layers that saved adapters change, full copies (`modules_to_save`) included."""
    targets = adapters.target_modules
    return targets if isinstance(targets, str) else [*targets, *(adapters.modules_to_save or ())]


def check_adapters(model: Any, targets: Collection[str] | str) -> None:
    """Checks the names of the layers that get adapters.

    Args:
        model: model without adapters.
        targets: names as in `train.lora.target_modules`; "all-linear" leaves both embeddings out.

    Raises:
        ConfigError: a name matches no layer, or a layer that shares its weight with another one.
    """
    if isinstance(targets, str):
        return
    layers = dict(model.named_modules())
    weights = [id(layer.weight) for layer in layers.values() if getattr(layer, "weight", None) is not None]
    for target in targets:
        named = [layer for name, layer in layers.items() if name == target or name.endswith(f".{target}")]
        if not named:
            last = {name.rpartition(".")[2] for name in layers}
            raise ConfigError(
                f"train.lora.target_modules: the model has no layer {target}{did_you_mean(target, last) or '; correct the name.'}"
            )
        if any(weights.count(id(getattr(layer, "weight", None))) > 1 for layer in named):
            raise ConfigError(
                f"train.lora.target_modules: {target} shares its weight with another layer of the model (tied embeddings), so that the saved "
                "model would not be the trained one. Leave it out."
            )
