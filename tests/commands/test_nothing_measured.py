"""Commands in which every dialogue failed end with one sentence and exit code 1; models are played as they were trained."""

import io
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from slim_rl.config import PolicyConfig, load_config
from slim_rl.dialogue.failures import Failures, nothing_measured
from slim_rl.dialogue.players import Partner, PartnerFailure
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.environment import View
from slim_rl.errors import ConfigError, RunStopped
from slim_rl.policies import check_model_name, model_of
from slim_rl.policies.transformers import load_model
from tests.commands.shell import call, refused, run
from tests.paths import MISSING, ROOT

LOCAL = ROOT / "configs" / "matching_local.yaml"


class Absent(Partner):
    """A partner that never answers."""

    identity = {"kind": "absent"}  # noqa: RUF012

    async def act(self, view: View) -> Any:
        raise PartnerFailure("nobody is there")


def words(tmp_path: Path, *more: str) -> list[str]:
    places = {"data.train": tmp_path / "t.jsonl", "data.eval": tmp_path / "e.jsonl", "data.num_eval": 3}
    found = {**places, "data.num_train": 3, "partner.kind": f"{__name__}.Absent", "partner.args": "{}"}
    return [word for key, value in found.items() for word in ("--set", f"{key}={value}")] + list(more)


def test_evaluate_in_which_every_dialogue_failed_exits_with_1(tmp_path: Path) -> None:
    named = ["--policy", "solo", "--mode", "forced:1", "--output", str(tmp_path / "cells")]
    said = refused("evaluate", LOCAL, *named, *words(tmp_path))
    assert "Nothing was measured in solo_" in said and "3 × partner_failed: nobody is there. Fix the cause" in said
    assert len(list((tmp_path / "cells").glob("*.jsonl"))) == 1, "what there is of it is kept"


def test_play_of_a_game_that_failed_exits_with_1(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("What is Ava Li on BLEU?\n" * 3))
    assert "The game failed: nobody is there" in refused("play", LOCAL, *words(tmp_path))


def test_train_whose_first_evaluation_failed_exits_with_1(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    places = {"output_dir": tmp_path / "runs", "train.processes": 1, "train.eval_games": 2}
    places |= {"data.num_train": 16, "policy.model": ROOT / "data" / "warmstart"}
    sets = [word for key, value in places.items() for word in ("--set", f"{key}={value}")]
    done = call("train", LOCAL, *words(tmp_path), *sets)
    said = "slim-rl: Nothing was measured in held-out games before training: 2 of 2 dialogues failed"
    assert done.returncode == 1 and said in done.stderr


def ended(*reasons: str) -> list[Dialogue]:
    return [Dialogue("d", "g", 0, 0, {}, {}, {}, stop_reason=StopReason(each), failure="a fault") for each in reasons]


@pytest.mark.parametrize(
    ("played", "named"),
    [
        ({"a": ["broken", "broken"], "b": ["agreed"]}, "in a: 2 of 2"),
        ({"a": ["broken"], "b": ["broken"]}, "in a, b: 2 of 2"),
        ({"a": ["broken", "agreed"]}, ""),
        ({"a": []}, ""),
    ],
)
def test_nothing_measured_names_what_failed_throughout(played: dict[str, list[str]], named: str) -> None:
    sentence = nothing_measured({name: ended(*found) for name, found in played.items()})
    assert bool(sentence) == bool(named) and named in sentence


STOPS = r"""
broken broken agreed agreed =>
broken broken aborted agreed => 2 of 3 dialogues failed \(67%\): 2 × broken: a fault. train.stop_failures allows 50%
budget agreed agreed agreed => Training stops: a fault
"""


@pytest.mark.parametrize("line", STOPS.strip().splitlines())
def test_training_stops_at_too_many_failures(line: str) -> None:
    reasons, _, stops = line.partition(" =>")
    with pytest.raises(RunStopped, match=stops.strip()) if stops else nullcontext():
        Failures(ended(*reasons.split())).check(load_config(LOCAL))


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The folder of a run of matching_local, whose model is its start."""
    folder = tmp_path / "runs" / "mine"
    shutil.copytree(ROOT / "data" / "warmstart", folder / "model")
    load_config(LOCAL).write(folder / "config.yaml")
    return folder


def test_evaluate_takes_a_run_with_its_own_settings(trained: Path, tmp_path: Path) -> None:
    load_config(LOCAL, ["game.n=4"]).write(trained / "config.yaml")
    places = ["--set", f"data.eval={tmp_path}/e.jsonl", "--set", "data.num_eval=4", "--output", tmp_path / "cells"]
    assert "mine_shy_free: 4 games" in run("evaluate", trained, "--dry-run", *places)
    assert load_config(trained).game.n == 4
    assert model_of("Qwen/Qwen3-0.6B", "MODEL") == "Qwen/Qwen3-0.6B", "no run's name"


def test_run_folder_without_a_model_is_refused(trained: Path) -> None:
    shutil.rmtree(trained / "model")
    assert "is the folder of a run without a model" in refused("evaluate", LOCAL, "--checkpoint", trained)


# -- a model that is neither here nor on the hub is refused in a sentence, and soon


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_a_model_that_cannot_be_read_is_one_sentence(tmp_path: Path, file: str) -> None:
    shutil.copytree(ROOT / "data" / "warmstart", tmp_path / "model")
    damages = [b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b"{}", b"{]", b"", b'{"version": "1.0"}']
    damages += [b'{"model_type": 3}', b'{"model_type": "qwen3", "hidden_size": "x"}']
    unread = r"is not a folder with a model|has no tokenizer \(.+\)\. Give a model's"
    for damage in damages:
        (tmp_path / "model" / file).write_bytes(damage)
        if file == "tokenizer_config.json" and damage.startswith((b"{}", b'{"')):
            continue  # a tokenizer's settings may be few
        with pytest.raises(ConfigError, match=unread) as caught:
            load_model(PolicyConfig(model=str(tmp_path / "model")))
        assert "\n" not in str(caught.value), damage


NOWHERE = f"{MISSING} ./modl ../modl ~/modl runs/x/modl a/b/c runs/modl"


@pytest.mark.parametrize("name", NOWHERE.split())
def test_what_looks_like_a_path_is_never_looked_for_on_the_hub(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    (tmp_path / "runs" / "x" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"'{name}' is not a folder here") as caught:
        check_model_name(name)
    assert ("Did you mean runs/x/model?" in str(caught.value)) == (name == "runs/x/modl")
    check_model_name("runs/x/model")
    check_model_name("data/warmstart")  # ours, from any folder
