"""A run on one machine and its folder: a mistake costs nothing, a full disk loses nothing, two processes are one run."""

import multiprocessing
import os
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import yaml
from accelerate.state import AcceleratorState, GradientState, PartialState

from slim_rl.analysis.report import answer
from slim_rl.backends import Result
from slim_rl.backends.ready import check_games
from slim_rl.backends.step_line import step_line
from slim_rl.backends.trl import launch
from slim_rl.backends.trl import run as local
from slim_rl.cli import main
from slim_rl.config import Config
from slim_rl.dialogue.log import read_log
from slim_rl.errors import DataError, SlimError
from slim_rl.files import write_atomically
from slim_rl.lab.warmstart.train import warmstart
from slim_rl.policies.transformers import load_model, save_model
from tests.backends.trl_setup import everything, make_config, metrics, same, trained, weights
from tests.fakes.disk import largest_file


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
    config = make_config(folder, "kept", "train.steps=1", "train.eval_games=2")
    if not config.run_dir.exists():
        local.train(config)
    before = everything(config.run_dir)
    with pytest.raises(SlimError, match=match):
        local.train(make_config(folder, "kept", wrong), fresh=True)
    assert everything(config.run_dir) == before
    with pytest.raises(SlimError, match=match):
        local.train(make_config(folder, "new", wrong))
    assert not (folder / "runs" / "new").exists()


def test_fresh_begins_anew(folder: Path, whole: Result) -> None:
    short = ("train.steps=1", "train.eval_games=0")
    first = shutil.copytree(whole.run_dir, folder / "runs" / "fresh")
    before = weights(first)
    again = local.train(make_config(folder, "fresh", "seed=2", *short), fresh=True)
    assert len(trained(again)) == 8 and not same(weights(first), before)
    assert yaml.safe_load((first / "config.yaml").read_text())["slim_rl"]["seed"] == 2


def test_a_model_replaces_a_model_alone_and_whole(folder: Path, tmp_path: Path) -> None:
    for name in ("thesis/thesis.tex", "project/config.json", "file"):
        write_atomically(tmp_path / name, '{"name": "a project"}')
    before, config = everything(tmp_path), make_config(folder, "warm")
    model, tokenizer = load_model(config.policy)
    for name in ("thesis", "project", "file"):
        for saves in (lambda path: save_model(model, tokenizer, path), lambda path: warmstart(config, path)):
            with pytest.raises(DataError, match="is not a model's folder"):
                saves(tmp_path / name)
    assert everything(tmp_path) == before
    (tmp_path / "empty").mkdir()
    for _ in range(2):  # the second replaces the first
        save_model(model, tokenizer, tmp_path / "empty")
    before = everything(tmp_path)
    assert "empty/model.safetensors" in before
    with largest_file(10_000), pytest.raises(DataError, match=r"Cannot write the model .*empty: "):
        save_model(model, tokenizer, tmp_path / "empty")
    assert everything(tmp_path) == before and not [path for path in tmp_path.iterdir() if path.name[0] == "."]


def in_forks(path: Path) -> str:
    """What the two processes of a run print, which torchrun would start: forks of this one, in which TRL is imported."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    fork = multiprocessing.get_context("fork")
    both = [fork.Process(target=_rank, args=(rank, port, path)) for rank in (0, 1)]
    for process in both:
        process.start()
    for process in both:
        process.join(200)
    printed = "".join(path.with_suffix(f".{rank}").read_text() for rank in (0, 1))
    assert [process.exitcode for process in both] == [0, 0], printed[-3000:]
    return printed


def _rank(rank: int, port: str, path: Path) -> None:
    with path.with_suffix(f".{rank}").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        sys.stdout = sys.stderr = output
        number = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        os.environ |= number | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for state in (AcceleratorState, GradientState, PartialState):
            state._shared_state.clear()
        main(["train", str(path)])


@pytest.mark.processes
def test_two_processes_print_once_and_resume_together(folder: Path, tmp_path: Path) -> None:
    """Two processes, and then two others on what they would have left had they been stopped after the first step: both are one run, and
    have the same weights at the end. One process plays none of their games again."""
    changes = [
        "processes=2",
        "games_per_step=1",
        "micro_batch=2",
        "kl_coef=0.1",
        "steps=2",
        "eval_games=3",
        "eval_every=1",
    ]
    changes = [f"train.{change}" for change in [*changes, "save_every=1", "keep_checkpoints=2"]]
    config, path = make_config(folder, "two", *changes, f"data.train={tmp_path}/g.jsonl"), tmp_path / "two.yaml"
    config.write(path)
    check_one_run(config, in_forks(path), steps=(1, 2))
    whole, logs, checkpoints = weights(config.run_dir), config.run_dir / "logs", config.run_dir / "checkpoints"
    assert not same(weights(checkpoints / "checkpoint-1"), whole)

    def evaluations(name: str) -> dict[Path, bytes]:
        return {log: log.read_bytes() for log in logs.glob(f"eval-{name}.jsonl")}

    for written in (config.run_dir / "model", checkpoints / "checkpoint-2"):
        shutil.rmtree(written)
    for file in (tmp_path / "g.jsonl", *logs.glob("eval-000002*")):
        file.unlink()
    between = evaluations("000001*")
    printed = in_forks(path)
    assert evaluations("000001*") == between and len(between) == 2
    assert "two resumes from step 1 of 2" in printed
    check_one_run(config, printed, steps=(2,))
    assert same(weights(config.run_dir), whole)

    played = evaluations("*")
    alone = local.train(config)
    assert evaluations("*") == played and len(played) == 6
    _, sentences = answer([*alone.before, *alone.after])
    words = " ".join(printed.split())  # the screen breaks lines between words
    assert "3 held-out games" in sentences[-1] and all(sentence in words for sentence in sentences)


def test_several_processes_are_started_with_the_commands_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def together(*given: Any) -> None:
        raise SystemExit(given)  # as when they have ended

    monkeypatch.setattr(launch, "start_together", together)
    make_config(folder, "two").write(folder / "two.yaml")
    words = ["train", str(folder / "two.yaml"), "--set=train.processes=2", "--fresh"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == (2, words)


def check_one_run(config: Config, printed: str, steps: tuple[int, ...]) -> None:
    """Both processes' games are in the run, and what is said is said once. `steps`: those that were taken."""
    assert [printed.count(f"step    {step - 1}: ") for step in (1, 2)] == [int(step in steps) for step in (1, 2)]
    for once in ("step    1, held-out: ", "model: ", "dialogues: "):
        assert printed.count(once) == 1, once
    begins = re.findall(rf" {steps[0] - 1}/2 \[\d\d:\d\d<\?", printed)
    assert len(begins) == 1 + (steps[0] > 1), "one bar begins, and stands again below what is said of the evaluation"
    assert [line["step"] for line in metrics(config)] == [0, 1]
    assert (config.run_dir / "checkpoints" / "checkpoint-2" / "trainer_state.json").exists()
    assert (config.run_dir / "model" / "model.safetensors").exists()

    def logged(name: str) -> list[list[Any]]:
        return [list(read_log(config.run_dir / "logs" / f"{name}{share}.jsonl")) for share in ("", "-1")]

    shares, played = logged("train"), logged("eval-000002")
    dialogues = [dialogue for share in shares for dialogue in share]
    assert [len(share) for share in shares] == [4, 4] and len({d.group for d in dialogues}) == 2
    assert len({(d.step, d.id) for d in dialogues}) == 8, "the group that is dealt to both is numbered through"
    assert [len(share) for share in played] == [2, 1] and len({d.id for share in played for d in share}) == 3
    assert "3 held-out games" in printed, "the report is of all of them"


def test_a_steps_line_fits_a_terminal_and_names_each_thing_once() -> None:
    logs = {"reward": 0.8765, "questions": 1.234, "pairs_asked": 1.5, "agreed": 0.98, "valid_proposals": 0.99}
    ends = {"stop/agreed": 0.98, "stop/max_turns": 0.01, "stop/policy_errors": 0.01, "failed": 0.0, "entropy": 0.456}
    line = step_line(1000, logs | ends)
    assert line.count("agreed") == 1 and "max_turns 1%" in line and len(line) <= 80
    room = {"stop/max_turns": 0.0, "stop/policy_errors": 0.0}
    assert "valid" in step_line(7, logs | ends | room), "there is room for it"


@pytest.mark.parametrize("selfplay", [False, True])
def test_too_few_games_for_a_step_are_refused(folder: Path, selfplay: bool) -> None:
    changes = [f"data.train={folder}/few-{selfplay}.jsonl", "data.num_train=2", "train.games_per_step=5"]
    config = make_config(folder, "few", *changes, "train.eval_games=0", *["partner.kind=self"] * selfplay)
    with pytest.raises(DataError, match=r"has 2 games, too few for a step of train.games_per_step=5"):
        check_games(config)
