"""Attention without copies of shared keys gives what transformers' own gives."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import DynamicCache, Qwen3ForCausalLM

from slim_rl.policies.batching.attention import NAME, share_keys
from slim_rl.policies.batching.row_cache import CACHE
from tests.fakes.models import tiny_qwen3


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    return tiny_qwen3(64, hidden_size=64, num_attention_heads=4, num_key_value_heads=2)


def shared(model: Qwen3ForCausalLM) -> Qwen3ForCausalLM:
    other = copy.deepcopy(model)
    share_keys(other)
    assert other.config._attn_implementation == NAME != model.config._attn_implementation
    return other


def test_padded_rows_have_the_same_logits_and_gradients(model: Qwen3ForCausalLM) -> None:
    ids = torch.randint(0, 64, (3, 12))
    mask = torch.ones_like(ids)
    mask[0, :5] = mask[1, 9:] = 0
    grads = []
    for one in (model, shared(model)):
        one.zero_grad()
        logits = one(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        logits.log_softmax(-1)[:, 0].sum().backward()
        grads.append([logits.detach(), *(p.grad for p in one.parameters())])
    for found, expected in zip(*grads, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_token_after_kept_keys_has_the_same_logits(model: Qwen3ForCausalLM) -> None:
    ids, last = torch.randint(0, 64, (3, 9)), torch.randint(0, 64, (3, 1))
    mask = torch.ones(3, 10, dtype=torch.long)
    mask[1, :4] = 0
    found = []
    with torch.no_grad():
        for one in (model, shared(model)):
            cache = DynamicCache(config=one.config)
            one(input_ids=ids, attention_mask=mask[:, :9], use_cache=True, **{CACHE: cache})
            found.append(one(input_ids=last, attention_mask=mask, use_cache=True, **{CACHE: cache}).logits)
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


def test_a_model_with_other_attention_keeps_it(model: Qwen3ForCausalLM) -> None:
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    share_keys(eager)
    assert eager.config._attn_implementation == "eager"
