"""The in-process policy: true logprobs, waves, limits."""

import asyncio
import copy
import threading
import warnings
from collections.abc import Iterable

import pytest

torch = pytest.importorskip("torch")
from transformers import MistralConfig, MistralForCausalLM, Qwen3ForCausalLM  # noqa: E402

from slim_rl.config import PolicyConfig  # noqa: E402
from slim_rl.dialogue.players import PolicyFailure, Sampled  # noqa: E402
from slim_rl.dialogue.record import StopReason  # noqa: E402
from slim_rl.errors import SlimWarning  # noqa: E402
from slim_rl.policies.transformers import TransformersPolicy, load_model  # noqa: E402
from tests.fakes.models import SHAPE, tiny_qwen3  # noqa: E402
from tests.paths import ROOT  # noqa: E402

STOP = 3


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    return tiny_qwen3(32, max_position_embeddings=128, tie_word_embeddings=True)


def sample_all(policy: TransformersPolicy, prompts: list[list[int]], most: int | list[int] = 12) -> list:
    limits = [most] * len(prompts) if isinstance(most, int) else most

    async def run() -> list:
        calls = [policy.sample(ids, n, f"{i:03}") for i, (ids, n) in enumerate(zip(prompts, limits, strict=True))]
        return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def windowed() -> MistralForCausalLM:
    """A model that looks back 6 tokens, and whose config names no kinds of layers."""
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(vocab_size=32, head_dim=16, sliding_window=6, **SHAPE)).eval()


DRAWS = [("model", 1.0, 1.0), ("model", 0.7, 1.0), ("model", 1.3, 0.8), ("windowed", 1.0, 1.0)]


@pytest.mark.parametrize(("name", "temperature", "top_p"), DRAWS)
def test_logprobs_are_those_of_the_distribution_drawn_from(name, temperature, top_p, request, monkeypatch) -> None:
    model = request.getfixturevalue(name)
    monkeypatch.setattr(model.generation_config, "repetition_penalty", 5.0)  # a checkpoint's habits do not count
    policy = TransformersPolicy(model, [STOP], temperature=temperature, top_p=top_p)
    prompts = [[5, 6, 7, 8, 9], [4, 4], [5 + i % 20 for i in range(25)]]
    for prompt, sampled in zip(prompts, sample_all(policy, prompts), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + sampled.ids])).logits[0, len(prompt) - 1 : -1] / temperature
        expected = logits.log_softmax(-1)
        if top_p < 1:
            ordered, order = expected.sort(descending=True)
            keep = ordered.exp().cumsum(-1) - ordered.exp() < top_p
            kept = torch.full_like(expected, -torch.inf).scatter(1, order, ordered.masked_fill(~keep, -torch.inf))
            expected = kept.log_softmax(-1)
        chosen = expected.gather(1, torch.tensor(sampled.ids)[:, None]).squeeze(1)
        assert torch.allclose(chosen, torch.tensor(sampled.logprobs), atol=1e-4)


def test_turns_of_one_dialogue_draw_other_numbers_each(model) -> None:
    policy = TransformersPolicy(model, [-1], temperature=1e6)  # all tokens are alike: the draws alone decide
    first, second, again = (asyncio.run(policy.sample(ids, 12, "one")).ids for ids in ([5, 6], [5, 6, 7], [5, 6]))
    assert first == again != second


def test_a_turn_ends_at_its_stop_token_or_its_own_limit(model) -> None:
    policy = TransformersPolicy(model, [STOP])
    prompts = [[i % 28 + 4, 5] for i in range(60)]
    limits = [1 + i % 9 for i in range(60)]
    for most, sampled in zip(limits, sample_all(policy, prompts, limits), strict=True):
        assert 0 < len(sampled.ids) == len(sampled.logprobs) <= most
        assert STOP not in sampled.ids[:-1]
        assert sampled.finish == ("stop" if sampled.ids[-1] == STOP else "length")
        assert sampled.finish == "stop" or len(sampled.ids) == most


@pytest.mark.parametrize("cache_bytes", (0, 2**20))
def test_a_short_turn_does_not_wait_for_a_long_one(model, cache_bytes: int) -> None:
    policy, ends = TransformersPolicy(model, [-1], cache_bytes=cache_bytes), []  # no token ends a turn

    async def dialogue(index: int, turns: int, tokens: int) -> list[int]:
        ids = [5 + index, 6]
        for _turn in range(turns):
            ids += [*(await policy.sample(ids, tokens, f"{index}")).ids, 7]
        ends.append(index)
        return ids

    async def run() -> list[list[int]]:
        return await asyncio.gather(dialogue(0, 1, 40), *(dialogue(i, 4, 2) for i in range(1, 8)))

    together = asyncio.run(run())
    assert ends[-1] == 0
    assert [together[3]] == [asyncio.run(dialogue(3, 4, 2))]  # rows that leave and join change nothing


def test_sample_with_more_waiting_than_running_joins(model) -> None:
    policy, sizes, begun, arrived = TransformersPolicy(model, [-1]), [], threading.Event(), threading.Event()

    def held(_, __, output) -> None:
        sizes.append(len(output.logits))
        begun.set()
        arrived.wait(20)

    hook = model.register_forward_hook(held)

    async def run() -> list[Sampled]:
        first = asyncio.create_task(policy.sample([5, 6], 40, "0"))
        await asyncio.to_thread(begun.wait, 20)
        others = [asyncio.create_task(policy.sample([7, index], 4, f"{index}")) for index in (1, 2, 3)]
        await asyncio.sleep(0)
        arrived.set()
        return await asyncio.gather(first, *others)

    together = asyncio.run(run())
    hook.remove()
    assert max(sizes) == 4
    assert together[0].ids == asyncio.run(TransformersPolicy(model, [-1]).sample([5, 6], 40, "0")).ids


def test_a_turn_does_not_depend_on_its_company_or_order(model) -> None:
    policy = TransformersPolicy(model, [STOP])

    async def run(order: Iterable[int]) -> dict[int, Sampled]:
        calls = {i: policy.sample([i + 4, 7] + [9] * i, 8, f"{i:02}") for i in order}
        return dict(zip(calls, await asyncio.gather(*calls.values()), strict=True))

    alone, company, other = (asyncio.run(run(order)) for order in ([0], range(12), range(11, -1, -1)))
    assert alone[0].ids == company[0].ids
    assert alone[0].logprobs == pytest.approx(company[0].logprobs, abs=1e-5)
    assert all(company[i].ids == other[i].ids for i in range(12))
    policy.reseed(1)
    again = asyncio.run(run(range(12)))
    assert [again[i].ids for i in range(12)] != [company[i].ids for i in range(12)]


def test_tokens_are_drawn_as_often_as_they_are_likely(model) -> None:
    policy = TransformersPolicy(model, [STOP], temperature=1.3, top_p=0.9)
    drawn = [sampled.ids[0] for sampled in sample_all(policy, [[5, 6, 7]] * 4000, [1] * 4000)]
    with torch.no_grad():
        probabilities = (model(torch.tensor([[5, 6, 7]])).logits[0, -1] / 1.3).softmax(-1)
    ordered, order = probabilities.sort(descending=True)
    kept = order[ordered.cumsum(-1) - ordered < 0.9]
    expected = probabilities[kept] / probabilities[kept].sum()
    counts = torch.tensor([drawn.count(token) for token in kept.tolist()])
    assert counts.sum() == 4000
    assert ((counts - 4000 * expected) ** 2 / (4000 * expected)).sum() < 2 * len(
        kept
    ) + 30  # chi-squared, its mean the degrees


def test_a_model_that_fails_fails_its_dialogues_and_not_the_loop(model) -> None:
    policy = TransformersPolicy(model.train(), [STOP])
    results = sample_all(policy, [[5, 10_000], [5, 6]])  # an id outside the vocabulary
    assert all(isinstance(result, PolicyFailure) for result in results) and model.training
    assert sample_all(policy, [[5, 6]])[0].ids and model.training, "its mode is given back"
    model.eval()


def test_waves_larger_than_the_batch_are_done_in_parts(model) -> None:
    policy, sizes = TransformersPolicy(model, [STOP], max_batch=4), []
    hook = model.register_forward_hook(lambda _, __, output: sizes.append(len(output.logits)))
    assert all(turn.ids for turn in sample_all(policy, [[5 + index, 6] for index in range(11)]))
    hook.remove()
    assert max(sizes) == 4


def test_input_beyond_context_fails_only_its_dialogue(model) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    text = {"vocab_size": 32, "head_dim": 16, **SHAPE, "max_position_embeddings": 64}
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes = {"image_size": 28, "patch_size": 14}
    config = AutoConfig.for_model("gemma3", text_config=text, vision_config={**vision, **sizes})
    multimodal = AutoModelForCausalLM.from_config(config).eval()  # whose text's context counts
    for one, positions in (model, 128), (multimodal, 64):
        good, bad = sample_all(TransformersPolicy(one, [STOP]), [[5, 6], [5] * positions])
        assert good.ids and isinstance(bad, PolicyFailure) and str(positions) in str(bad)
        assert bad.reason is StopReason.CONTEXT_LENGTH
    boundless = copy.copy(model)
    boundless.config = copy.deepcopy(model.config)
    del boundless.config.max_position_embeddings
    (sampled,) = sample_all(TransformersPolicy(boundless, [STOP]), [[5] * 100])
    assert sampled.ids


def test_dialogues_with_one_prompt_read_it_once(model) -> None:
    read: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, __, kw: read.append(kw["input_ids"].numel()), with_kwargs=True)
    shared, other = list(range(3, 30)), list(range(5, 20))
    try:
        together = sample_all(TransformersPolicy(model, [1]), [shared, other, shared, shared], most=1)
        assert read == [2 * len(shared)], "two prompts, padded to the longer"
        alone = sample_all(TransformersPolicy(model, [1], max_batch=1), [shared, other, shared, shared], most=1)
    finally:
        hook.remove()
    assert [turn.ids for turn in together] == [turn.ids for turn in alone]
    assert [turn.logprobs[0] for turn in together] == pytest.approx([turn.logprobs[0] for turn in alone], abs=1e-5)


def test_turn_end_that_pads_too_is_trained(tokenizer, tmp_path) -> None:
    """Transformers leaves out the gradient of an embedding that the config names as padding."""
    end = tokenizer.eos_token_id
    tiny_qwen3(len(tokenizer), pad_token_id=end, eos_token_id=end).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model, _ = load_model(PolicyConfig(model=str(tmp_path)))
    model(torch.tensor([[5, end, 6, 7]])).logits[:, 1:].log_softmax(-1)[..., 8].sum().backward()
    assert model.get_input_embeddings().weight.grad[end].abs().sum() > 0


@pytest.mark.parametrize("has_it", [True, False])
def test_bfloat16_needs_a_processor_that_has_it(has_it: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_it)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    config = PolicyConfig(model=str(ROOT / "data" / "warmstart"), dtype="bfloat16")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, _ = load_model(config)
    assert next(model.parameters()).dtype is (torch.bfloat16 if has_it else torch.float32)
    said = [str(each.message) for each in caught if issubclass(each.category, SlimWarning)]
    assert len(said) == (0 if has_it else 1) and all("policy.dtype=bfloat16" in each for each in said)
