"""What a model is taught by is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl")
import torch
from safetensors.torch import load_file

from slim_rl.config import load_config
from slim_rl.dialogue.partner import PartnerFailure
from slim_rl.dialogue.record import Turn
from slim_rl.environment import View
from slim_rl.errors import ConfigError
from slim_rl.games.matching.partners.scripted import ScriptedPartner
from slim_rl.lab.warmstart.train import warmstart
from tests.paths import ROOT


def test_warmstart_by_adapters_merges_them(tmp_path: Path) -> None:
    changes = [f"data.train={tmp_path}/games.jsonl", "data.num_train=4", "data.eval=null", "warmstart.lessons={}"]
    changes += [
        f"warmstart.start={ROOT}/data/warmstart",
        "warmstart.games=32",
        "warmstart.batch_size=2",
        "train.lora={r: 2}",
    ]
    warmstart(load_config("matching_local", changes), tmp_path / "model")
    before, after = (
        load_file(folder / "model.safetensors") for folder in (ROOT / "data" / "warmstart", tmp_path / "model")
    )
    assert before.keys() == after.keys()
    taught = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert taught and all(name.endswith("_proj.weight") for name in taught), "and the embeddings are as they were"


def test_a_demonstration_that_failed_is_refused_with_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: ScriptedPartner, view: View) -> Turn:
        raise PartnerFailure("no answer to that")

    monkeypatch.setattr(ScriptedPartner, "act", fails)
    changes = [f"data.train={tmp_path}/games.jsonl", "data.num_train=4", "data.eval=null", "warmstart.lessons={}"]
    changes += [f"warmstart.start={ROOT}/data/warmstart", "warmstart.games=6"]
    with pytest.raises(
        ConfigError, match=r"A demonstration of the game \S+ failed \(partner_failed: .*no answer to that"
    ):
        warmstart(load_config("matching_local", changes), tmp_path / "model")
    assert not (tmp_path / "model").exists()
