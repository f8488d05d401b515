"""What is data runs no code: a log that names a game imports nothing, nor does a model bring any (SECURITY.md)."""

import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl import cli
from slim_rl.config import PolicyConfig, load_config
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.environment import game_of
from slim_rl.errors import ConfigError, DataError
from slim_rl.jsonl import encode
from tests.paths import ROOT

EVIL = "from pathlib import Path\nPath('ran').touch()\n"
TREASURE = (ROOT / "examples" / "treasure.py").read_text()


def log_of(environment: str, **changes: Any) -> bytes:
    dialogue = Dialogue("d0", "g0", 0, 0, {"treasure": [0, 1]}, {"model": "m"}, {"kind": "p"}, environment, "run-s0")
    dialogue.turns = [Turn("Row A?", 0, "policy", {"kind": "question"}), Turn("Yes.", 1, "partner", {"kind": "answer"})]
    dialogue.reward, dialogue.stop_reason, dialogue.step = 1.0, StopReason.FINISHED, 0
    return encode({**dialogue.to_dict(tokens=False), **changes}) + b"\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a command as somebody whose folder, which is on Python's path, holds `examples/` and `evilmod` beside a log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name == "evilmod" or name.split(".")[0] == "examples"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "examples").mkdir()
    for file in ("evilmod.py", "examples/__init__.py", "examples/evil.py"):
        (tmp_path / file).write_text(EVIL)
    (tmp_path / "contrasts.yaml").write_text("contrasts: []\n")
    (tmp_path / "text.md").write_text("Nothing.\n")
    manifest = {"title": "t", "contrasts": "contrasts.yaml", "text": "text.md", "commit": "c", "machine": "m"}
    manifest |= {"treatment": "p", "sources": {"held_out": {"logs": ["logs"], "command": "c"}}}
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    (tmp_path / "logs").mkdir()

    def command(*words: str) -> None:
        try:
            cli.main(words)
        except SystemExit as end:
            assert end.code in (0, 1)

    return command


COMMANDS = ("show logs", "analyze logs --output plots", "lab page experiment.yaml --output page")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("game", ["evilmod.Game", "examples.evil.Game", "slim_rl.games.evilmod.Game", "os.system"])
def test_a_log_imports_nothing(
    run: Callable[..., None], tmp_path: Path, command: str, game: str, unprinted: None
) -> None:
    (tmp_path / "logs" / "eval.jsonl").write_bytes(log_of(game, phase="eval"))
    run(*command.split())
    assert not (tmp_path / "ran").exists()
    assert "evilmod" not in sys.modules and "examples" not in sys.modules


def test_an_evaluation_imports_nothing_from_its_logs(run: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "logs" / "warmstart_shy_free.jsonl").write_bytes(log_of("evilmod.Game"))
    small = ["--set", "data={num_train: 1, num_eval: 1}", "--set", "train.games_per_step=1", "--games", "1"]
    run("evaluate", "matching_local", "--checkpoint", "data/warmstart", "--output", "logs", *small)
    assert len((tmp_path / "logs" / "warmstart_shy_free.jsonl").read_bytes().splitlines()) == 2  # it did play
    assert not (tmp_path / "ran").exists()


def test_a_game_that_is_named_is_used(
    run: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_treasure.py").write_text(TREASURE)
    (tmp_path / "logs" / "train.jsonl").write_bytes(log_of("own_treasure.Treasure"))
    run("show", "logs")
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("--game own_treasure.Treasure") == 1 and "(row" not in said
    assert game_of("own_treasure.Treasure") is None
    run("show", "logs", "--game", "own_treasure.Treasure")
    said = capsys.readouterr().out
    assert "--game" not in said and "informative" in said
    run("show", "logs", "--game", "nowhere.Game")
    assert "nowhere.Game cannot be imported" in capsys.readouterr().err


class Evil:
    """Makes a file `ran` in the working folder when it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("ran"),)


def test_a_model_brings_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    from slim_rl.policies import load_tokenizer
    from slim_rl.policies.transformers import load_model

    monkeypatch.chdir(tmp_path)
    model = tmp_path / "model"
    shutil.copytree(ROOT / "data" / "warmstart", model)
    (model / "evil.py").write_text(EVIL)
    for file, auto_map, kind in (
        ("config.json", {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}, {"model_type": "evil"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["evil.Tokenizer", None]}, {"tokenizer_class": "Tokenizer"}),
    ):
        (model / file).write_text(json.dumps(json.loads((model / file).read_text()) | kind | {"auto_map": auto_map}))
    with pytest.raises(ConfigError, match=r"policy\.model"):
        load_model(PolicyConfig(model=str(model)))
    with pytest.raises(ConfigError):
        load_tokenizer(str(model))
    assert not (tmp_path / "ran").exists()


def test_weights_are_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from slim_rl.policies.transformers import load_model

    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "data" / "warmstart", tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    torch.save({"model.embed_tokens.weight": Evil()}, tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"policy\.model"):
        load_model(PolicyConfig(model=str(tmp_path / "model")))
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Evil()))
    assert (tmp_path / "ran").exists(), "it would have run"


def test_slime_is_given_no_model_with_code(tmp_path: Path) -> None:
    from slim_rl.backends.checkpoints import locate_model

    described = json.loads((ROOT / "data" / "warmstart" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(described))
    locate_model(str(tmp_path), download=False)
    (tmp_path / "config.json").write_text(json.dumps(described | {"auto_map": {"AutoModel": "evil.Model"}}))
    with pytest.raises(DataError, match="auto_map"):
        locate_model(str(tmp_path), download=False)


def test_the_trainers_are_told_to_trust_no_code(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from slim_rl.backends.trl.arguments import grpo_arguments
    from slim_rl.backends.verl.settings import settings

    assert grpo_arguments(load_config("matching_local"), tmp_path).trust_remote_code is False
    told = settings(load_config("verl_ppo"))
    parts = ("data", "critic.model", "actor_rollout_ref.model")
    assert [told[f"{part}.trust_remote_code"] for part in parts] == [False] * 3
