"""A run on one machine and its folder: a mistake costs nothing, a full disk loses nothing, two processes are one run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("trl")
import torch
import yaml
from safetensors.torch import load_file

from slim_rl.analysis.report import answer
from slim_rl.backends import Result
from slim_rl.backends.ready import check_games
from slim_rl.backends.step_line import step_line
from slim_rl.backends.trl import run as local
from slim_rl.backends.trl.checkpoints import last_whole_checkpoint
from slim_rl.config import Config
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.record import Turn
from slim_rl.errors import DataError, SlimError
from slim_rl.files import write_atomically
from slim_rl.games.matching.partners.scripted import ShyPartner
from slim_rl.lab.warmstart.train import warmstart
from slim_rl.policies.transformers import load_model, save_model
from tests.backends.test_trl import make_config, weights
from tests.fakes.disk import largest_file
from tests.paths import ROOT


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Noted(ShyPartner):
    """A shy partner that notes the event loops it answers in."""

    loops: ClassVar[list[asyncio.AbstractEventLoop]] = []

    async def act(self, view: Any) -> Turn:
        self.loops.append(asyncio.get_running_loop())
        return await super().act(view)


def test_a_run_has_one_event_loop(folder: Path) -> None:
    noted = f"partner.kind={__name__}.Noted"
    config = make_config(folder, "loops", "train.steps=2", "train.eval_games=2", noted)
    result = local.train(config)
    played = [*result.before, *read_log(config.run_dir / "logs" / "train.jsonl"), *result.after]
    assert {dialogue.step for dialogue in played} == {0, 1, 2}
    assert len(Noted.loops) == sum(turn.role == "partner" for dialogue in played for turn in dialogue.turns)
    assert len(set(map(id, Noted.loops))) == 1


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ("policy.model=/no/such/model", r"policy\.model"),
        ("partner={kind: yoked, args: {replay: /no/such/log.jsonl}}", "log"),
        ("partner={kind: shy, args: {charm: 3}}", r"partner\.args"),
        ("data.seed=5", "was made with seed=0"),
        ("train.micro_batch=3", "micro_batch"),
    ],
)
def test_refused_run_removes_and_claims_nothing(folder: Path, wrong: str, match: str) -> None:
    config = make_config(folder, "kept", "train.steps=2", "train.eval_games=2")
    if not config.run_dir.exists():
        local.train(config)
    before = everything(config.run_dir)
    with pytest.raises(SlimError, match=match):
        local.train(make_config(folder, "kept", wrong), fresh=True)
    assert everything(config.run_dir) == before
    with pytest.raises(SlimError, match=match):
        local.train(make_config(folder, "new", wrong))
    assert not (folder / "runs" / "new").exists()


def test_fresh_begins_anew(folder: Path) -> None:
    short = ("train.steps=1", "train.eval_games=0")
    first = local.train(make_config(folder, "fresh", *short))
    before = weights(first)
    again = local.train(make_config(folder, "fresh", "seed=2", *short), fresh=True)
    assert len(list(read_log(again.log_dir / "train.jsonl"))) == 8
    assert yaml.safe_load((first.run_dir / "config.yaml").read_text())["slim_rl"]["seed"] == 2
    assert any(not tensor.equal(before[name]) for name, tensor in weights(again).items())


def test_a_model_is_not_saved_over_what_is_no_model(folder: Path, tmp_path: Path) -> None:
    write_atomically(tmp_path / "thesis" / "thesis.tex", "ten years")
    write_atomically(tmp_path / "project" / "config.json", '{"name": "a project"}')
    write_atomically(tmp_path / "file", "x")
    before = everything(tmp_path)
    config = make_config(folder, "warm")
    model, tokenizer = load_model(config.policy)
    for name in ("thesis", "project", "file"):
        with pytest.raises(DataError, match="is not a model's folder"):
            save_model(model, tokenizer, tmp_path / name)
        with pytest.raises(DataError, match="is not a model's folder"):
            warmstart(config, tmp_path / name)
    assert everything(tmp_path) == before
    (tmp_path / "empty").mkdir()
    for _ in range(2):  # the second replaces the first
        save_model(model, tokenizer, tmp_path / "empty")
    assert (tmp_path / "empty" / "model.safetensors").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_full_disk_keeps_earlier_checkpoints(folder: Path, whole: Result) -> None:
    config = make_config(folder, "full", "train.keep_checkpoints=1")
    local.train(make_config(folder, "full", "train.keep_checkpoints=1", "train.steps=2"))
    checkpoints = config.run_dir / "checkpoints"
    size = (checkpoints / "checkpoint-2" / "model.safetensors").stat().st_size
    with largest_file(size - 1), pytest.raises(DataError, match=r"Cannot write the checkpoint .*checkpoint-4"):
        local.train(config)
    model = everything(config.run_dir / "model")
    found = last_whole_checkpoint(checkpoints)
    assert found is not None and found.name == "checkpoint-2"
    resumed = local.train(config)
    assert all(torch.equal(tensor, weights(whole)[name]) for name, tensor in weights(resumed).items())
    assert [path.name for path in checkpoints.glob("checkpoint-*")] == ["checkpoint-4"]
    assert everything(config.run_dir / "model") != model


def test_a_model_on_a_full_disk_leaves_the_one_before(folder: Path, tmp_path: Path) -> None:
    model, tokenizer = load_model(make_config(folder, "warm").policy)
    save_model(model, tokenizer, tmp_path / "model")
    before = everything(tmp_path)
    with largest_file(10_000), pytest.raises(DataError, match=r"Cannot write the model .*model: "):
        save_model(model, tokenizer, tmp_path / "model")
    assert everything(tmp_path) == before


def scalars(events: Path) -> dict[str, float]:
    """The last value of every number in a file of TensorBoard's."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(events))
    read.Reload()
    return {name: read.Scalars(name)[-1].value for name in read.Tags()["scalars"]}


def test_run_writes_tensorboard_files_and_model_card(folder: Path) -> None:
    pytest.importorskip("tensorboard")
    config = make_config(folder, "told", "train.steps=2", "train.eval_every=1", "train.report_to=[tensorboard]")
    result = local.train(config)
    (events,) = (result.run_dir / "tensorboard").glob("events.out.tfevents.*")
    played = [dialogue for dialogue in read_log(result.log_dir / "train.jsonl") if dialogue.step == 1]
    between = batch_metrics(list(read_log(result.log_dir / "eval-000001.jsonl")))
    measured = {f"train/dialogue/{name}": value for name, value in batch_metrics(played).items()}
    told = scalars(events)
    assert measured.keys() <= told.keys() and "train/dialogue/questions" in measured
    assert all(told[name] == pytest.approx(value, rel=1e-5) for name, value in measured.items())
    assert "train/loss" in told and "train/questions" not in told
    assert all(
        told[f"eval/dialogue/{name}"] == pytest.approx(between[name], rel=1e-5) for name in ("reward", "questions")
    )
    assert not list((result.run_dir / "checkpoints").rglob("events.out.*"))
    _, front, text = (result.run_dir / "model" / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "transformers"
    assert "base_model" not in yaml.safe_load(front)  # a local folder is unknown to a hub
    reward = sum(dialogue.reward or 0.0 for dialogue in result.after) / len(result.after)
    assert "# told" in text and config.environment in text and f"| {reward:.3f} " in text


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def in_processes(config: Config, path: Path, launcher: list[str]) -> subprocess.CompletedProcess[str]:
    config.write(path)
    return subprocess.run(
        [sys.executable, *launcher, "-m", "slim_rl.cli", "train", str(path)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.processes
def test_two_processes_print_once_and_resume_together(folder: Path, tmp_path: Path) -> None:
    """Two processes that the command starts itself, and then two of torchrun's on what they would have left had they been stopped
    after the first step: both are one run, and have the same weights at the end. One process plays none of their games again."""
    sizes = (
        "train.games_per_step=1",
        "train.micro_batch=2",
        "train.kl_coef=0.1",
        "train.steps=2",
        "train.eval_games=3",
        "train.eval_every=1",
    )
    kept = ("train.save_every=1", "train.keep_checkpoints=2", f"data.train={tmp_path}/g.jsonl")
    config = make_config(folder, "two", "train.processes=2", *sizes, *kept)
    done = in_processes(config, tmp_path / "two.yaml", [])
    check_one_run(config, done, steps=(1, 2))
    whole, first = weights_of(config.run_dir / "model"), config.run_dir / "checkpoints" / "checkpoint-1"
    assert any(not torch.equal(tensor, whole[name]) for name, tensor in weights_of(first).items())

    logs = config.run_dir / "logs"
    for folder_written in (config.run_dir / "model", config.run_dir / "checkpoints" / "checkpoint-2"):
        shutil.rmtree(folder_written)
    for file in (tmp_path / "g.jsonl", *logs.glob("eval-000002*")):
        file.unlink()
    between = [(logs / f"eval-000001{share}.jsonl").read_bytes() for share in ("", "-1")]
    done = in_processes(config, tmp_path / "two.yaml", TORCHRUN)
    assert [(logs / f"eval-000001{share}.jsonl").read_bytes() for share in ("", "-1")] == between
    assert "two resumes from step 1 of 2" in done.stderr
    check_one_run(config, done, steps=(2,))
    parts = weights_of(config.run_dir / "model")
    assert parts.keys() == whole.keys() and all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())

    played = {log: log.read_bytes() for log in logs.glob("eval-*.jsonl")}
    assert len(played) == 6
    alone = local.train(config)
    assert {log: log.read_bytes() for log in logs.glob("eval-*.jsonl")} == played
    _, sentences = answer([*alone.before, *alone.after])
    printed = " ".join(done.stdout.split())  # the screen breaks lines between words
    assert "3 held-out games" in sentences[-1] and all(sentence in printed for sentence in sentences)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def check_one_run(config: Config, done: subprocess.CompletedProcess[str], steps: tuple[int, ...]) -> None:
    """Both processes' games are in the run, and what is said is said once. `steps`: those that `done` took."""
    assert done.returncode == 0, done.stderr[-3000:]
    printed = done.stdout + done.stderr
    assert [printed.count(f"step    {step - 1}: ") for step in (1, 2)] == [int(step in steps) for step in (1, 2)]
    assert printed.count("step    1, held-out: ") == 1
    assert printed.count("model: ") == printed.count("dialogues: ") == 1
    begins = re.findall(rf" {steps[0] - 1}/2 \[\d\d:\d\d<\?", printed)
    assert len(begins) == 1 + (steps[0] > 1), "one bar begins, and stands again below what is said of the evaluation"
    logged = [json.loads(line)["step"] for line in (config.run_dir / "metrics.jsonl").read_text().split("\n") if line]
    assert logged == [0, 1]
    assert (config.run_dir / "checkpoints" / "checkpoint-2" / "trainer_state.json").exists()
    assert (config.run_dir / "model" / "model.safetensors").exists()
    logs = [list(read_log(config.run_dir / "logs" / file)) for file in ("train.jsonl", "train-1.jsonl")]
    assert [len(dialogues) for dialogues in logs] == [4, 4]
    named = {(dialogue.step, dialogue.id) for dialogues in logs for dialogue in dialogues}
    assert len(named) == 8, "the group that is dealt to both is numbered through"
    assert len({dialogue.group for dialogues in logs for dialogue in dialogues}) == 2
    shares = [list(read_log(config.run_dir / "logs" / file)) for file in ("eval-000002.jsonl", "eval-000002-1.jsonl")]
    assert [len(dialogues) for dialogues in shares] == [2, 1]
    assert len({dialogue.id for dialogues in shares for dialogue in dialogues}) == 3
    assert "3 held-out games" in printed, "the report is of all of them"


def test_a_steps_line_fits_a_terminal_and_names_each_thing_once() -> None:
    logs = {
        "reward": 0.8765,
        "questions": 1.234,
        "pairs_asked": 1.5,
        "agreed": 0.98,
        "valid_proposals": 0.99,
        "entropy": 0.456,
    }
    logs |= {"stop/agreed": 0.98, "stop/max_turns": 0.01, "stop/policy_errors": 0.01, "failed": 0.0}
    line = step_line(1000, logs)
    assert line.count("agreed") == 1 and "max_turns 1%" in line
    assert len(line) <= 80
    assert "valid" in step_line(7, {**logs, "stop/max_turns": 0.0, "stop/policy_errors": 0.0}), "there is room for it"


@pytest.mark.parametrize("selfplay", [False, True])
def test_too_few_games_for_a_step_are_refused(folder: Path, selfplay: bool) -> None:
    games = folder / f"few-{selfplay}.jsonl"
    changes = [f"data.train={games}", "data.num_train=2", "train.games_per_step=5", "train.eval_games=0"]
    config = make_config(folder, "few", *changes, *(["partner.kind=self"] if selfplay else []))
    with pytest.raises(DataError, match=r"has 2 games, too few for a step of train.games_per_step=5"):
        check_games(config)
