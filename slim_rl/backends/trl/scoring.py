"""Log-probabilities of a micro-batch's completions, computed without what they do not need.

    same log-probabilities, same gradients as TRL's: a prompt that several rows share is read once, rows of unlike length are
    computed apart, and the output layer sees only positions whose token is scored

TRL 1.16 on a CPU projects every position of prompt and completion onto the vocabulary. Of a short dialogue nine tokens in ten
are prompt, and the dialogues of a group share it.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from trl.kernels import ChunkedLogProbFunction

from slim_rl.policies.batching.row_cache import CACHE
from slim_rl.policies.batching.turn_cache import TurnCache

_PASS_CPU, _PASS_GPU = 64, 4096  # work of a pass through the model beside that of its tokens, in tokens; estimated
_TILE = 32768  # vocabulary entries projected at once
_RESCALED = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")


def suits(model: PreTrainedModel) -> bool:
    """Returns True if the output layer is frozen, as with adapters, its logits are not rescaled, and attention is full.

    A model trained whole needs the output layer's gradient in any case, and keeps TRL's own computation to the last bit.
    """
    config = model.config.get_text_config(decoder=True)
    rescaled = any(getattr(config, name, None) is not None for name in _RESCALED)
    frozen = not any(weight.requires_grad for weight in model.get_output_embeddings().parameters())
    return frozen and TurnCache.suits(model) and not rescaled


def add_scoring(model: PreTrainedModel, temperature: float) -> None:
    """Adds `model(input_ids, attention_mask, scored=mask)`, which returns `(log_probs, entropies)` of the scored tokens.

    The keyword passes through the wrappers of PEFT and of torch's data parallelism, which see an ordinary forward pass.

    Args:
        model: the causal language model itself, outside any wrapper.
        temperature: divisor of the logits.
    """
    forward = model.forward

    @functools.wraps(type(model).forward)
    def scoring(*args: Any, scored: torch.Tensor | None = None, **kwargs: Any) -> Any:
        if scored is None:
            return forward(*args, **kwargs)
        return score(model, kwargs["input_ids"], kwargs["attention_mask"], scored, temperature)

    model.forward = scoring  # type: ignore[method-assign]


def score(
    model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, scored: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns log-probabilities and entropies, each (rows, completion tokens), zero where nothing is scored.

    Args:
        ids: (rows, tokens); prompts are padded on the left, completions on the right.
        mask: (rows, tokens); 0 at padding.
        scored: (rows, completion tokens); True at tokens whose log-probability is wanted.
        temperature: divisor of the logits.
    """
    start = ids.shape[1] - scored.shape[1]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    prompts, owners = torch.unique(torch.stack((ids, mask, positions))[..., :start], dim=1, return_inverse=True)
    states = DynamicCache(config=model.config)
    ends = _hidden(model, prompts[0], prompts[1], prompts[2], states)[:, -1]
    before = ends.new_zeros(*scored.shape, ends.shape[-1])
    before[:, 0] = ends[owners]
    lengths = mask[:, start:].sum(1).clamp(min=1)
    for rows in of_like_length(lengths.tolist(), _PASS_CPU if ids.device.type == "cpu" else _PASS_GPU):
        width = int(lengths[rows].max())
        cache = DynamicCache(config=model.config)
        for number, layer in enumerate(states.layers):
            cache.update(layer.keys[owners[rows]], layer.values[owners[rows]], number)  # type: ignore[index]
        end = start + width
        completions = _hidden(model, ids[rows, start:end], mask[rows, :end], positions[rows, start:end], cache)
        before[rows, 1:width] = completions[:, :-1]
    before = before[scored]
    head = model.get_output_embeddings()
    logprobs, entropies, *_ = ChunkedLogProbFunction.apply(
        before, head.weight, head.bias, ids[:, start:][scored], temperature, _TILE, None, 1.0, ("log_probs", "entropy")
    )
    # Connected to the model even where nothing is scored, so that `backward` has a gradient of zero to compute.
    return tuple(each.new_zeros(scored.shape).masked_scatter(scored, each) for each in (logprobs, entropies))  # type: ignore[return-value]


def of_like_length(lengths: Sequence[int], cost: int) -> list[list[int]]:
    """Returns the rows in passes with the least work: tokens, padding included, and `cost` tokens per pass."""
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    least: list[tuple[int, list[list[int]]]] = [(0, [])]  # work and passes of the first rows of that order
    for end in range(1, len(order) + 1):
        widest = lengths[order[end - 1]]
        work, start = min((least[start][0] + (end - start) * widest + cost, start) for start in range(end))
        least.append((work, [*least[start][1], order[start:end]]))
    return least[-1][1]


def _hidden(
    model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: DynamicCache
) -> torch.Tensor:
    output = model.base_model(
        input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **{CACHE: cache}
    )
    return output.last_hidden_state  # type: ignore[no-any-return]
