"""Experiments: arms times seeds as separate runs."""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from slim_rl.commands.lab.run import Run, Step, arms_runs, numbers_of, play, step_of
from slim_rl.config import Config, load_config, read_yaml
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.players import make_partner
from slim_rl.errors import ConfigError, SlimError
from tests.commands.shell import call
from tests.paths import ROOT

CONFIG = ROOT / "configs" / "matching_local.yaml"
ARMS = ROOT / "analysis" / "experiment.yaml"
ASKING, ASKING_ARMS = ROOT / "configs" / "asking_local.yaml", ROOT / "analysis" / "asking" / "experiment.yaml"


def plan(
    config: Path, arms: list[str], seeds: list[int], changes: Sequence[str] = (), experiment: Path | None = None
) -> dict[str, Run]:
    """The runs of arms, all of them if none is named, by name."""
    known = None if experiment is None else read_yaml(experiment)["arms"]
    options = {"arms": arms, "seeds": ",".join(map(str, seeds))}
    return {run.name: run for run in arms_runs(config, known, options, changes)}


def of_arm(runs: dict[str, Run]) -> dict[str, Config]:
    return {run.config.arm_name: run.config for run in runs.values() if run.config}


def lab(*words: object, code: int = 0) -> tuple[str, str]:
    """Runs `lab run`; what it prints to stdout and stderr."""
    done = call("lab", "run", *words)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_options_reach_arms_of_a_config_and_no_experiment() -> None:
    options = "--arm shy --arm mute --seeds 3 --backend slime --set train.steps=2 -- --lr 2e-6"
    lines = lab(CONFIG, "--dry-run", *options.split())[0].splitlines()
    names = [re.search(r"name=(\S+)", line)[1] for line in lines]  # type: ignore[index]
    assert names == ["matching_local-shy-s3", "matching_local-mute-s3"]
    assert all("--set train.steps=2 --set train.backend=slime " in line for line in lines)
    assert all(line.endswith(" -- --lr 2e-6") for line in lines)
    (run,) = arms_runs(CONFIG, None, {"seeds": 3, "arms": "shy", "by": "a b", "after": "--c"}, [])
    assert (run.command[:4], run.command[-2:]) == (["a", "b", str(CONFIG), "--set"], ["--", "--c"])
    for option in ("--arm shy", "--seeds 3", "--jobs 2", "--set train.steps=2", "-- --lr=1"):
        said = lab(ARMS.parent, "--dry-run", *option.split(), code=1)[1]
        assert "is an experiment: its steps have arms, seeds" in said


def test_a_machine_without_the_backend_prints_the_plan(monkeypatch: Any) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    out, err = lab(CONFIG, "--backend", "slime", "--arm", "shy", "--seeds", 3)
    assert out.count("\n") == 1 and "This is the plan, and nothing is run: " in err


def test_seeds_are_numbers_and_ranges() -> None:
    assert numbers_of("0, 2,5-7") == [0, 2, 5, 6, 7]
    for wrong in ("", "1;2", "1-", "-1", "1-2-3", "one", "3-1", "0-99999999", "0-600,0-600"):
        with pytest.raises(ConfigError, match=f"^'{wrong}' is not a list of at most 1,000 numbers and ranges"):
            numbers_of(wrong)


def process(name: str, folder: Path, code: str, *needs: str) -> Run:
    """An arm's run that is a Python program."""
    return Run(name, ("-c", code), (sys.executable,), Config(output_dir=folder), frozenset(needs))


def test_the_others_go_on_when_one_fails_and_it_is_named(tmp_path: Path) -> None:
    codes = {"good": 0, "bad": 3, "also-good": 0}
    runs = [process(name, tmp_path, f"print('{name}'); raise SystemExit({code})") for name, code in codes.items()]
    with pytest.raises(SlimError, match=r"^Failed: bad\. See .*/<run>\.out\."):
        play(Step(runs, jobs=2))
    assert [(tmp_path / f"{name}.out").read_text().strip() for name in codes] == list(codes)


@pytest.mark.parametrize(("config", "arms"), [(CONFIG, ARMS), (ASKING, ASKING_ARMS)])
def test_every_arms_partner_can_be_made(config: Path, arms: Path, tmp_path: Path, make_dialogue: Any) -> None:
    told = "[message] Ava Li on Electra: 90."
    with DialogueLog(tmp_path / "shy" / "train.jsonl") as log:
        log.append(make_dialogue("[message] What is Ava Li on Electra?", told))
    for run in plan(config, [], [3], [], arms).values():
        assert run.config is not None
        args = {**run.config.partner.args, "replay": str(tmp_path / "shy")}
        settings = run.config.changed(partner={"args": args}) if run.needs else run.config
        partner = make_partner(settings)
        assert partner is not None and partner.identity["kind"] == settings.partner.kind, run.name


def test_run_waits_for_the_log_of_its_twin(tmp_path: Path) -> None:
    runs = plan(CONFIG, ["yoked", "shy"], [3, 4], ["output_dir=runs/arms"], ARMS)
    yoked = runs["matching_local-yoked-s4"]
    assert yoked.needs == {"matching_local-shy-s4"} and not runs["matching_local-shy-s4"].needs
    assert yoked.config is not None
    assert yoked.config.partner.args["replay"] == str(Path("runs/arms/matching_local-shy-s4/logs").absolute())
    writes = f"import pathlib, time; time.sleep(0.3); pathlib.Path(r'{tmp_path}/log').write_text('x')"
    reads = f"open(r'{tmp_path}/log')"
    second = process("second", tmp_path, reads, "first", "elsewhere")
    play(Step([second, process("first", tmp_path, writes)], jobs=2))
    again = tmp_path / "again"
    with pytest.raises(SlimError, match="Failed: bad, second"):
        play(Step([process("bad", again, "raise SystemExit(3)"), process("second", again, reads, "bad")], jobs=2))
    assert not (again / "second.out").exists()


def test_at_the_end_stands_the_command_of_the_report(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("slim_rl.commands.lab.run.play", lambda step: None)
    config = ROOT / "examples" / "treasure.yaml"
    out, _ = lab(config, "--arm", "honest", "--seeds", "0,1", "--set", f"output_dir={tmp_path}")
    logs = f"treasure-honest-s0/logs {tmp_path}/treasure-honest-s1/logs"
    assert out.splitlines()[-1].endswith(f"{logs} --game examples.treasure.Treasure")


def test_runs_that_wait_for_each_other_are_not_run_and_named(tmp_path: Path) -> None:
    runs = [process("one", tmp_path, "", "two"), process("two", tmp_path, "", "one"), process("three", tmp_path, "")]
    with pytest.raises(SlimError, match=r"^Failed: one, two\."):
        play(Step(runs))
    assert {path.name for path in tmp_path.iterdir()} == {"three.out"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_runs(number: int, tmp_path: Path) -> None:
    def send() -> None:
        while not all(path.exists() and path.read_text() for path in outs):
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    sleep, config = ("-c", "echo $$; exec sleep 600"), Config(output_dir=tmp_path)
    runs = [Run(name, sleep, ("sh",), config) for name in ("one", "two", "three")]
    outs = [tmp_path / "one.out", tmp_path / "two.out"]
    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(SystemExit) as ended:
        play(Step(runs, jobs=2))
    sender.join()
    assert ended.value.code == 128 + number and not (tmp_path / "three.out").exists()
    assert not any(Path(f"/proc/{path.read_text().strip()}").exists() for path in outs)


@pytest.mark.parametrize("backend", ["trl", "slime", "verl"])
def test_arms_cross_seeds_on_every_backend(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of all committed plans are in `tests/goldens`; here, that a run's command is its config."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    arms = ["shy", "open_book", "frozen", "agreement_only", "price_3", "yoked"]
    if backend != "verl":  # it has no whole step's dialogues at once
        arms += ["shuffled_reward", "shaping"]
    changes = [f"train.backend={backend}", "output_dir=runs/arms", "train={lr_schedule: constant, lr_decay_steps: 0}"]
    runs = plan(CONFIG, arms, [0, 1], changes, ARMS)
    assert list(runs) == [f"matching_local-{arm}-s{seed}" for seed in (0, 1) for arm in arms]
    for name, run in runs.items():
        assert run.config is not None and (run.config.name, f"-s{run.config.seed}") == (name, name[-3:])
        assert load_config(Path(run.words[1]), run.words[3::2]) == run.config
    logs = Path.cwd() / "runs/arms/matching_local-shy-s1/logs"
    assert f'partner.args.replay="{logs}"' in runs["matching_local-yoked-s1"].words


# -- steps of an experiment's YAML; `tests/goldens` holds the plans of those committed


def words(**options: Any) -> list[str]:
    (run,) = step_of({"evaluate": {"by": "program", **options}}, 1, Path("e.yaml")).runs
    return list(run.words)


def test_step_options_become_words() -> None:
    assert words(words="a.yaml", mode=["free", "forced:{1,3-4}"], keep=True, no=False, games=2) == [
        *("a.yaml", "--mode", "free", "--mode", "forced:1", "--mode", "forced:3", "--mode", "forced:4", "--keep"),
        *("--games", "2"),
    ]
    assert words(set={"a.b": [0.5, {}], "c": "3e-4", "d": False}, after=["--x", 1]) == [
        *("--set", "a.b=[0.5, {}]", "--set", "c=3e-4", "--set", "d=false", "--", "--x", "1")
    ]
    assert words(checkpoint="s{1-2}/t{3,4}")[1::2] == ["s1/t3", "s1/t4", "s2/t3", "s2/t4"]


WRONG = """
[{fly: {}}] => the step 'fly' is not a command
[{evaluate: {words: a.yaml, moed: free}}] => No such option: --moed
[{evaluate: {words: a.yaml, games: many}}] => many
[{evaluate: {}, train: {}}] => step 1 is not one command
[{evaluate: a.yaml}] => step 1 is not one command
[{evaluate: {words: a.yaml, set: [a=1]}}] => a set without keys and values
[{train: {words: a.yaml, arms: shy, jobs: 2}}] => step 1 has arms, which only a train with seeds has
[{evaluate: {words: matching_local, set: {partner.kid: shy}}}] => 'partner.kid' is not a key
evaluate => steps
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_step_is_one_sentence(line: str, tmp_path: Path) -> None:
    steps, _, says = line.partition(" => ")
    (tmp_path / "experiment.yaml").write_text(f"{{title: t, steps: {steps}}}")
    out, err = lab(tmp_path, "--dry-run", code=1)
    assert says in err and err.count("\n") == 1 and not out


def test_a_step_that_failed_is_where_the_next_run_resumes(tmp_path: Path) -> None:
    """By a Python that writes down what it is told, and fails in its second step, once."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/ran\n'
        f"case $* in *two*) test -e {tmp_path}/cause && exit 3;; *one*) touch {tmp_path}/made;; esac\nexit 0\n"
    )
    python.chmod(0o755)
    steps: list[dict[str, Any]] = [{"train": {"by": str(python), "words": name}} for name in ("one", "two", "three")]
    steps[0]["train"]["makes"] = str(tmp_path / "made")
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump({"title": "t", "steps": steps}))
    (tmp_path / "cause").touch()
    _, err = lab(tmp_path, code=1)
    (tmp_path / "cause").unlink()
    lab(tmp_path)
    ran = [line.split()[-1] for line in (tmp_path / "ran").read_text().splitlines()]
    assert ran == ["one", "two", "two", "three"]
    assert "two'. Fix the cause" in err
    assert sys.executable not in (tmp_path / "ran").read_text()
