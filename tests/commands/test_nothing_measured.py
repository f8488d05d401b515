"""Commands in which every dialogue failed end with one sentence and exit code 1; models are played as they were trained."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl.cli import main
from slim_rl.config import load_config
from slim_rl.dialogue.failures import nothing_measured
from slim_rl.dialogue.partner import PartnerFailure
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.environment import View
from slim_rl.trained import differences, model_of, trained_config
from tests.commands.bench_setup import content, refused, run, suites, written
from tests.paths import ROOT

__all__ = ["suites"]
LOCAL = ROOT / "configs" / "matching_local.yaml"


class Absent:
    """A partner that never answers."""

    identity = {"kind": "absent"}  # noqa: RUF012

    async def act(self, view: View) -> Any:
        raise PartnerFailure("nobody is there")


def words(tmp_path: Path, *more: str) -> list[str]:
    places = {"data.train": tmp_path / "t.jsonl", "data.eval": tmp_path / "e.jsonl", "data.num_eval": 3}
    found = {**places, "data.num_train": 3, "partner.kind": f"{__name__}.Absent", "partner.args": "{}"}
    return [word for key, value in found.items() for word in ("--set", f"{key}={value}")] + list(more)


def test_evaluate_in_which_every_dialogue_failed_exits_with_1(tmp_path: Path, capsys: Any) -> None:
    named = ["--policy", "solo", "--mode", "forced:1", "--output", str(tmp_path / "cells")]
    said = refused(capsys, "evaluate", LOCAL, *named, *words(tmp_path))
    assert "Nothing was measured in solo_" in said and "3 × partner_failed: nobody is there. Fix the cause" in said
    assert (tmp_path / "cells" / "table.txt").exists(), "what there is of it is kept"


def test_bench_in_which_every_dialogue_failed_exits_with_1(tmp_path: Path, capsys: Any) -> None:
    folder = written(tmp_path / "suites", partner={"kind": f"{__name__}.Absent"}, arms={"free": {}})
    said = refused(capsys, "lab", "bench", "greedy:2", "--suites", folder, "--output", tmp_path / "bench")
    assert "Nothing was measured in tiny_free: 6 of 6 dialogues failed" in said


def test_play_of_a_game_that_failed_exits_with_1(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("What is Ava Li on BLEU?\n" * 3))
    assert "The game failed: nobody is there" in refused(capsys, "play", LOCAL, *words(tmp_path))


def test_train_whose_first_evaluation_failed_exits_with_1(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("trl")
    places = {
        "output_dir": tmp_path / "runs",
        "log.dir": tmp_path / "logs",
        "train.processes": 1,
        "train.eval_games": 2,
    }
    places |= {"data.num_train": 16, "policy.model": ROOT / "data" / "warmstart"}
    sets = [word for key, value in places.items() for word in ("--set", f"{key}={value}")]
    with pytest.raises(SystemExit) as ended:
        main(["train", str(LOCAL), *words(tmp_path), *sets])
    assert ended.value.code == 1
    assert "slim-rl: Nothing was measured in eval-000000: 2 of 2 dialogues failed" in capsys.readouterr().err


def dialogue(failed: bool) -> Dialogue:
    reason = StopReason.BROKEN if failed else StopReason.AGREED
    return Dialogue("d", "g", 0, 0, {}, {}, {}, stop_reason=reason, failure="a fault" if failed else None)


@pytest.mark.parametrize(
    ("played", "named"),
    [
        ({"a": [True, True], "b": [False]}, "in a: 2 of 2"),
        ({"a": [True], "b": [True]}, "in a, b: 2 of 2"),
        ({"a": [True, False]}, ""),
        ({"a": []}, ""),
    ],
)
def test_nothing_measured_names_what_failed_throughout(played: dict[str, list[bool]], named: str) -> None:
    sentence = nothing_measured({name: [dialogue(each) for each in found] for name, found in played.items()})
    assert bool(sentence) == bool(named) and named in sentence


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The folder of a run of matching_local, whose model is its start."""
    folder = tmp_path / "runs" / "mine"
    shutil.copytree(ROOT / "data" / "warmstart", folder / "model")
    load_config(LOCAL).write(folder / "config.yaml")
    return folder


def test_bench_of_a_run_plays_as_it_was_trained(trained: Path, suites: Path, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("torch")
    words = ["--suites", suites, "--suite", "tiny_free", "--output", tmp_path / "bench"]
    run("lab", "bench", trained, *words)
    said = capsys.readouterr().out
    for setting in ("game.rules=none", "policy.top_p=0.98", "limits.turn_tokens=64", "limits.dialogue_tokens=1024"):
        assert setting in said
    ends = [
        each["stop_reason"] for each in content(tmp_path / "bench" / "mine.json.gz")["suites"]["tiny_free"]["dialogues"]
    ]
    assert ends.count("agreed") >= 5 and "ended without a result" not in said


def test_bench_of_an_unknown_model_says_how_games_ended(suites: Path, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("torch")
    words = [
        "--suites", suites, "--suite", "tiny_free", "--output", tmp_path / "bench", "--set", "limits.turn_tokens=1",
    ]  # fmt: skip
    run("lab", "bench", ROOT / "data" / "warmstart", *words)
    assert "6 of 6 games ended without a result (turn_tokens 6)" in " ".join(capsys.readouterr().out.split())


def test_evaluate_takes_a_run_and_says_what_differs(trained: Path, tmp_path: Path, capsys: Any) -> None:
    places = ["--set", f"data.eval={tmp_path}/e.jsonl", "--set", "data.num_eval=4", "--output", str(tmp_path / "cells")]
    names = ["--set", f"game.reviewers={[f'Reviewer {number}' for number in range(41)]}"]
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(LOCAL), "--checkpoint", str(trained), "--set", "game.n=4", *names, "--dry-run", *places])
    said = capsys.readouterr().out
    assert not ended.value.code and "mine_shy_free: 4 games" in said
    assert (
        f"{trained}/model is evaluated with other settings: game.n=4 (trained with 3), game.reviewers=['Reviewer 0',"
        in said
    )
    assert "'Reviewer 40'" not in said  # a long list is cut


def test_run_folder_without_a_model_is_refused(trained: Path, tmp_path: Path, capsys: Any) -> None:
    shutil.rmtree(trained / "model")
    for command in (
        ["lab", "bench", trained],
        ["evaluate", LOCAL, "--checkpoint", trained],
        ["play", LOCAL, "--model", trained],
    ):
        assert "is the folder of a run without a model" in refused(capsys, *command)


def test_trained_config_is_of_the_run_that_holds_the_model(trained: Path, tmp_path: Path) -> None:
    (trained / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    for model in ("model", "checkpoints/checkpoint-2"):
        found = trained_config(str(trained / model))
        assert found is not None and found.name == "matching_local" and not differences(found, found)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"slim_rl": {"name": "of somebody else"}}))
    shutil.move(trained / "model", tmp_path / "moved")
    assert trained_config(str(tmp_path / "moved")) is None
    assert model_of("Qwen/Qwen3-0.6B", "MODEL") == "Qwen/Qwen3-0.6B"
