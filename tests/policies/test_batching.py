"""What is shared and kept between turns of a batch changes what is computed, and nothing else."""

import asyncio
import copy
import random

import pytest

pytest.importorskip("torch")
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    DynamicCache,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    TopPLogitsWarper,
)

from slim_rl.dialogue.players import Sampled
from slim_rl.policies.batching.attention import NAME, share_keys
from slim_rl.policies.batching.row_cache import CACHE
from slim_rl.policies.batching.top_p import top_p
from slim_rl.policies.batching.turn_cache import TurnCache
from slim_rl.policies.transformers import TransformersPolicy
from tests.fakes.models import SHAPE, tiny_qwen3

STOP = 3


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    return tiny_qwen3(32)


def play(policy: TransformersPolicy, dialogues: int = 9, turns: int = 5) -> list[list[Sampled]]:
    """Dialogues side by side, each heard something of its own length after every turn."""

    async def dialogue(index: int) -> list[Sampled]:
        rng = random.Random(index)
        ids = [rng.randrange(4, 32) for _ in range(3 + index)]
        said = []
        for _ in range(turns - index % 3):
            sampled = await policy.sample(ids, 1 + rng.randrange(10), f"{index}")
            said.append(sampled)
            ids = ids + sampled.ids + [rng.randrange(4, 32) for _ in range(rng.randrange(1, 9))]
        return said

    async def run() -> list[list[Sampled]]:
        return await asyncio.gather(*(dialogue(index) for index in range(dialogues)))

    return asyncio.run(run())


@pytest.mark.parametrize("cache_bytes", [2**30, 20_000])  # room for all; for some of them only
def test_the_same_words_are_sampled_with_and_without(model, cache_bytes) -> None:
    kept = TransformersPolicy(model, [STOP], cache_bytes=cache_bytes)
    assert kept.turns is not None
    recomputed = TransformersPolicy(model, [STOP], cache_bytes=0)
    assert recomputed.turns is None
    for ours, theirs in zip(play(kept), play(recomputed), strict=True):
        assert [turn.ids for turn in ours] == [turn.ids for turn in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert kept.turns._bytes <= cache_bytes


def test_a_later_turn_computes_only_what_is_new(model) -> None:
    read: list[int] = []
    hook = model.model.embed_tokens.register_forward_hook(lambda _, args, out: read.append(args[0].shape[1]))
    policy = TransformersPolicy(model, [STOP])
    try:
        first = asyncio.run(policy.sample([5] * 50, 4, "a"))
        read.clear()
        asyncio.run(policy.sample([5] * 50 + first.ids + [7, 8], 1, "a"))
    finally:
        hook.remove()
    assert read[0] == 3  # the last sampled token, and two more


def test_another_past_is_not_mistaken_for_ones_own(model) -> None:
    policy, recomputed = TransformersPolicy(model, [STOP]), TransformersPolicy(model, [STOP], cache_bytes=0)
    asyncio.run(policy.sample([5, 6, 7, 8], 4, "a"))
    changed = [9] * 12
    assert asyncio.run(policy.sample(changed, 6, "a")).ids == asyncio.run(recomputed.sample(changed, 6, "a")).ids


def test_new_weights_find_nothing_kept(model) -> None:
    policy = TransformersPolicy(model, [STOP])
    asyncio.run(policy.sample([5, 6, 7, 8], 4, "a"))
    assert policy.turns is not None and policy.turns._kept
    policy.reseed(0)
    assert not policy.turns._kept and policy.turns._bytes == 0


def test_a_model_that_looks_back_only_so_far_is_left_alone() -> None:
    config = Qwen2Config(sliding_window=8, use_sliding_window=True, max_window_layers=0, vocab_size=32, **SHAPE)
    assert not TurnCache.suits(Qwen2ForCausalLM(config))


@pytest.fixture(scope="module")
def grouped() -> Qwen3ForCausalLM:
    return tiny_qwen3(64, hidden_size=64, num_attention_heads=4, num_key_value_heads=2)


def shared(model: Qwen3ForCausalLM) -> Qwen3ForCausalLM:
    other = copy.deepcopy(model)
    share_keys(other)
    assert other.config._attn_implementation == NAME != model.config._attn_implementation
    return other


def test_shared_keys_give_the_same_logits_and_gradients(grouped: Qwen3ForCausalLM) -> None:
    ids, mask = torch.randint(0, 64, (3, 13)), torch.ones(3, 13, dtype=torch.long)
    mask[0, :5] = mask[1, 9:12] = 0
    found = []
    for one in (grouped, shared(grouped)):
        one.zero_grad()
        logits = one(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        logits.log_softmax(-1)[:, 0].sum().backward()
        cache = DynamicCache(config=one.config)
        with torch.no_grad():
            one(input_ids=ids[:, :12], attention_mask=mask[:, :12], use_cache=True, **{CACHE: cache})
            last = one(input_ids=ids[:, 12:], attention_mask=mask, use_cache=True, **{CACHE: cache}).logits
        found.append([logits.detach(), last, *(weights.grad for weights in one.parameters())])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_a_model_with_other_attention_keeps_it(grouped: Qwen3ForCausalLM) -> None:
    eager = copy.deepcopy(grouped)
    eager.set_attn_implementation("eager")
    share_keys(eager)
    assert eager.config._attn_implementation == "eager"


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 9),
    vocabulary=st.sampled_from((2, 31, 32, 33, 640, 5000)),
    spread=st.floats(0.1, 20),  # from hardly peaked, where most tokens stay, to one token that has it all
    p=st.floats(0.05, 0.999),
)
def test_the_same_tokens_stay(seed: int, rows: int, vocabulary: int, spread: float, p: float) -> None:
    logits = (
        torch.randn((rows, vocabulary), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread
    )
    expected = TopPLogitsWarper(p)(None, logits)  # type: ignore[arg-type]
    assert torch.equal(top_p(logits, p), expected)


def test_of_equal_tokens_none_is_preferred() -> None:
    assert torch.isfinite(top_p(torch.zeros(1, 8), 0.5)).all()
