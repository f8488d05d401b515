"""LoRA adapters (Hu et al. 2021), as `train.lora` describes them."""

from __future__ import annotations

from peft import LoraConfig

from slim_rl.config.sections import LoraSection


def lora_config(lora: LoraSection) -> LoraConfig:
    """peft's settings of a causal language model's adapters."""
    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        task_type="CAUSAL_LM",
    )
