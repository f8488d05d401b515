"""Adapters are merged into the model that was trained, or refused."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
from peft import get_peft_model  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from slim_rl.backends.trl.export import write  # noqa: E402
from slim_rl.backends.trl.run import train  # noqa: E402
from slim_rl.config import load_config  # noqa: E402
from slim_rl.config.sections import LoraSection  # noqa: E402
from slim_rl.errors import ConfigError  # noqa: E402
from slim_rl.lab.warmstart.train import warmstart  # noqa: E402
from slim_rl.policies.lora import check_adapters, lora_config  # noqa: E402
from slim_rl.policies.transformers import save_model  # noqa: E402
from tests.fakes.models import tiny_qwen3  # noqa: E402
from tests.paths import ROOT  # noqa: E402

START = ROOT / "data" / "warmstart"  # its embeddings are tied
TIED = ["q_proj", "embed_tokens"]
REFUSED = "embed_tokens shares its weight with another layer"


def adapted(targets: Any, tied: bool) -> Any:
    """A model whose adapters have been trained: none of them is zero."""
    model = tiny_qwen3(64, tie_word_embeddings=tied)
    check_adapters(model, targets)
    model = get_peft_model(model, lora_config(LoraSection(r=2, target_modules=targets)))
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora" in name:
                weights.normal_(std=0.5)
    return model.eval()


@pytest.mark.parametrize(
    ("targets", "tied"), [(["q_proj"], True), ("all-linear", True), (TIED, False), (["lm_head", "embed_tokens"], False)]
)
def test_saved_model_computes_what_the_trained_one_did(targets: Any, tied: bool, tmp_path: Path) -> None:
    model, ids = adapted(targets, tied), torch.arange(12)[None]
    before = model(ids).logits
    save_model(model, AutoTokenizer.from_pretrained(START), tmp_path / "model")
    after = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()(ids).logits
    assert torch.allclose(before, after, atol=1e-3)
    assert not torch.allclose(before, tiny_qwen3(64, tie_word_embeddings=tied)(ids).logits, atol=0.1)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (TIED, REFUSED),
        (["lm_head"], "lm_head shares its weight with another layer"),
        (["model.embed_tokens"], "model.embed_tokens shares"),
        (["q_proj", "kv_proj"], r"no layer kv_proj; did you mean [kv]_proj\?"),
        (["attention.self.query"], r"no layer attention.self.query; correct the name"),
    ],
)
def test_adapters_that_cannot_be_saved_are_refused(targets: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_adapters(tiny_qwen3(64, tie_word_embeddings=True), targets)


def few(folder: Path, *changes: str) -> Any:
    own = (f"data.train={folder}/games.jsonl", "data.num_train=4", "data.eval=null", f"policy.model={START}")
    paths = (f"output_dir={folder}/runs", "train.eval_games=0", "train.games_per_step=4")
    return load_config(
        "matching_local", [*own, *paths, "train.lora={r: 2, target_modules: [q_proj, embed_tokens]}", *changes]
    )


def test_tied_embeddings_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=REFUSED):
        train(few(tmp_path))
    assert not (tmp_path / "runs").exists() and not (tmp_path / "logs").exists()
    with pytest.raises(ConfigError, match=REFUSED):
        warmstart(few(tmp_path, f"warmstart.start={START}", "warmstart.games=8"), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_export_refuses_adapters_of_tied_embeddings(tmp_path: Path) -> None:
    """Those of a run from before they were refused in training."""
    start = AutoModelForCausalLM.from_pretrained(START)
    targets = LoraSection(r=2, target_modules=TIED)
    get_peft_model(start, lora_config(targets)).save_pretrained(tmp_path / "checkpoint-1")
    with pytest.raises(ConfigError, match=REFUSED):
        write(tmp_path, few(tmp_path), tmp_path / "checkpoint-1", tmp_path / "out")
