"""The nucleus is transformers' own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from transformers import TopPLogitsWarper  # noqa: E402

from slim_rl.policies.batching.top_p import TopP  # noqa: E402


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
    assert torch.equal(TopP(p)(None, logits), expected)


def test_of_equal_tokens_none_is_preferred() -> None:
    kept = TopP(0.5)(None, torch.zeros(1, 8))
    assert torch.isfinite(kept).all()
