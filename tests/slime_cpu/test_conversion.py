"""slime's conversion between Hugging Face and Megatron: both compute the same, and the way back gives the same weights."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from transformers import AutoModelForCausalLM  # noqa: E402

from tests.paths import ROOT  # noqa: E402

pytestmark = pytest.mark.slime
SEQUENCES = [[5, 9, 17, 33, 2], [100, 200, 300], list(range(1, 200))]
MODELS = ["warmstart", "warmstart_selfplay"]


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers_and_weights_come_back(slime: Any, name: str, tmp_path: Path) -> None:
    folder = ROOT / "data" / name
    theirs = slime("logits", model=folder, sequences=SEQUENCES)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for sequence, found in zip(SEQUENCES, theirs["logits"], strict=True):
        with torch.no_grad():
            expected = model(torch.tensor([sequence])).logits[0]
        apart = (found - expected).abs().max() / expected.abs().max()
        print(f"{name}, {len(sequence)} tokens: {apart:.1e} of the largest logit, {expected.abs().max():.1f}")
        assert apart <= 1e-5
    weights = dict(model.named_parameters())
    assert theirs["weights"].keys() == weights.keys()
    assert all(torch.equal(value, weights[key]) for key, value in theirs["weights"].items())
