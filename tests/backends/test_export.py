"""A run becomes a model folder that loads, says what it is, and plays as the checkpoint did; or nothing changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("trl")
import torch
from transformers import AutoModelForCausalLM

from slim_rl.backends.card import base_model
from slim_rl.backends.export import export
from slim_rl.backends.trl import run as local
from slim_rl.commands.cells import Cell
from slim_rl.commands.evaluate import evaluate
from slim_rl.commands.export import check_name
from slim_rl.config import Config, parse_config
from slim_rl.errors import ConfigError, DataError, SlimWarning
from tests.backends.test_trl import make_config
from tests.fakes.hub import Hub
from tests.paths import ROOT


@pytest.fixture(scope="module")
def trained(folder: Path) -> Config:
    config = make_config(folder, "exported", "train.save_every=1", "train.steps=2", "train.eval_games=2")
    if not config.run_dir.exists():
        local.train(config)
    return config


def weights(path: Path) -> dict[str, torch.Tensor]:
    model: Any = AutoModelForCausalLM.from_pretrained(path)
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def front(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((path / "README.md").read_text(encoding="utf-8").split("---\n", 2)[1])
    return data


def test_a_damaged_checkpoint_is_passed_over_and_said(trained: Config, tmp_path: Path) -> None:
    shutil.copytree(trained.run_dir, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "checkpoint-2" / "model.safetensors").write_bytes(b"torn")
    with pytest.warns(
        SlimWarning, match=r"checkpoint-2 is damaged and not used: .*checkpoint-1 is the last whole one before"
    ):
        done = export(tmp_path / "run", tmp_path / "out")
    assert done.checkpoint.name == "checkpoint-1"


def test_export_of_trl_checkpoint_plays_the_same_games(trained: Config, tmp_path: Path) -> None:
    done = export(trained.run_dir, tmp_path / "out")
    assert (done.backend, done.checkpoint.name) == ("trl", "checkpoint-2")
    assert same(weights(tmp_path / "out"), weights(trained.run_dir / "model"))
    cells = [Cell(str(trained.run_dir / "model"), "shy"), Cell(str(tmp_path / "out"), "shy")]
    first, second = evaluate(trained, cells, tmp_path / "cells", 4).values()
    assert [[turn.text for turn in d.turns] for d in first] == [[turn.text for turn in d.turns] for d in second]


def test_a_step_is_chosen_by_its_number_and_the_card_says_so(trained: Config, tmp_path: Path) -> None:
    cells = evaluate(trained, [Cell(str(trained.run_dir / "model"), "shy")], tmp_path / "cells", 3)
    export(trained.run_dir, tmp_path / "out", 1, [tmp_path / "cells"])
    assert not same(weights(tmp_path / "out"), weights(trained.run_dir / "model"))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "# exported" in card and "1 of 2" in card and "GRPO (TRL)" in card and "## Licence" in card
    assert "| before training (the start) | 2 |" in card and f"| {next(iter(cells))} | 3 |" in card
    with pytest.raises(DataError, match="has 1, 2"):
        export(trained.run_dir, tmp_path / "none", 7)


def test_a_model_is_replaced_only_when_told_to(trained: Config, tmp_path: Path) -> None:
    export(trained.run_dir, tmp_path / "out", 1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(DataError, match=r"out holds a model: name another folder, or replace it with --overwrite\.$"):
        export(trained.run_dir, tmp_path / "out", 2)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    export(trained.run_dir, tmp_path / "out", 2, overwrite=True)
    assert same(weights(tmp_path / "out"), weights(trained.run_dir / "model"))


def test_the_card_keeps_the_starts_rows_apart(trained: Config, tmp_path: Path) -> None:
    """As `evaluate` logs them: start and model beside each other in one folder."""
    cells = [Cell(trained.policy.model, "shy"), Cell(str(trained.run_dir / "model"), "shy")]
    start, model = evaluate(trained, cells, tmp_path / "cells", 3)
    export(trained.run_dir, tmp_path / "out", results=[tmp_path / "cells"])
    results = (tmp_path / "out" / "README.md").read_text().split("## Results")[1].split("## Licence")[0]
    after, before = results.split("### Before training")
    assert "| after training | 2 |" in after and f"| {model} | 3 |" in after and start not in after
    assert (
        "| before training (the start) | 2 |" in before
        and f"| {start} (the start) | 3 |" in before
        and model not in before
    )
    assert "not of this model" in before
    own = (trained.run_dir / "model" / "README.md").read_text()  # written when training ends
    assert (
        own.index("| after training |")
        < own.index("### Before training")
        < own.index("| before training (the start) |")
    )


def test_an_export_that_fails_leaves_what_was_there(trained: Config, tmp_path: Path) -> None:
    export(trained.run_dir, tmp_path / "out")
    before = weights(tmp_path / "out")
    run = tmp_path / "run"
    shutil.copytree(trained.run_dir, run)
    newest = run / "checkpoints" / "checkpoint-2" / "model.safetensors"
    newest.write_bytes(b"x" * newest.stat().st_size)
    with pytest.raises(ConfigError):
        export(run, tmp_path / "out", overwrite=True)
    assert (
        same(before, weights(tmp_path / "out"))
        and [path.name for path in tmp_path.iterdir() if path.name[0] == "."] == []
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(DataError, match="not a model"):
        export(trained.run_dir, tmp_path / "mine", overwrite=True)
    with pytest.raises(DataError, match="not a run's folder"):
        export(tmp_path / "mine", tmp_path / "out")


def test_adapters_are_merged(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    config = make_config(
        folder, "lora", "train.steps=1", "train.save_every=1", "train.eval_games=0", "train.lora={r: 4}"
    )
    local.train(config)
    export(config.run_dir, tmp_path / "out")
    merged, model = weights(tmp_path / "out"), weights(config.run_dir / "model")
    assert merged.keys() == model.keys()
    assert all(torch.allclose(merged[name], model[name], atol=1e-5) for name in merged)


def test_the_licence_is_the_bases_where_its_card_tells(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--Qwen--Qwen3-0.6B" / "snapshots" / "c1899"
    snapshot.mkdir(parents=True)
    (snapshot / "README.md").write_text("---\nlicense: apache-2.0\nlicense_link: https://x/LICENSE\n---\nText")
    name, found = base_model(str(snapshot))
    assert name == "Qwen/Qwen3-0.6B" == found["base_model"]
    assert (found["license"], found["license_link"]) == ("apache-2.0", "https://x/LICENSE")
    assert base_model("Qwen/Qwen3-4B") == ("Qwen/Qwen3-4B", {"base_model": "Qwen/Qwen3-4B"})
    assert base_model(str(tmp_path)) == (tmp_path.name, {})


def slime_run(folder: Path, run: Path) -> Config:
    config = make_config(folder, run.name, "train.backend=slime", f"log.dir={run}/dialogues")
    for number in (0, 1, 2):
        (run / f"iter_{number:07d}").mkdir(parents=True)
        (run / f"iter_{number:07d}" / "common.pt").touch()
    (run / "latest_checkpointed_iteration.txt").write_text("1\n")
    config.write(run / "config.yaml", mis={"other_plugin": 1})
    return config


def at(hub: Hub, folder: Path, token: str, *command: str) -> subprocess.CompletedProcess[str]:
    """A process that knows this hub and no other."""
    own = {"HF_ENDPOINT": hub.url, "HF_TOKEN": token, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    own |= {"HF_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *command], env=os.environ | own, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_model_is_put_on_the_hub_in_one_commit(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    slime_run(folder, run)
    shutil.copytree(folder / "model", run / "hf" / "5")  # exported without torch, which takes seconds to start
    words = ["export", str(run), "--output", str(tmp_path / "out"), "--push", "me/shy", "--private"]
    with Hub() as hub:
        done = at(hub, tmp_path, "hf_right", "-m", "slim_rl.cli", *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == f"{hub.url}/me/shy" and hub.private == {"me/shy"}
        sent = hub.repositories["me/shy"]
    assert sent == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= sent.keys()


def test_a_hub_that_refuses_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    code = "import sys; from pathlib import Path; from slim_rl.commands.export import push_model as push; push(Path(sys.argv[1]), 'me/x')"
    with Hub() as hub:
        done = at(hub, tmp_path, "hf_wrong", "-c", code, str(tmp_path / "out"))
    assert done.stderr.splitlines()[-1].startswith("slim_rl.errors.SlimError: Uploading me/x failed (")
    assert "401" in done.stderr.splitlines()[-1]
    assert "hf_wrong" not in done.stderr
    with pytest.raises(ConfigError, match="OWNER/NAME"):
        check_name("no//name")


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    parse_config({}).write(tmp_path / "run" / "config.yaml")
    with pytest.raises(DataError, match=r"no whole checkpoint yet"):
        export(tmp_path / "run", tmp_path / "out")
