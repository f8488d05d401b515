"""Experiments: arms times seeds as separate runs."""

from __future__ import annotations

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

from slim_rl.cli import main
from slim_rl.commands.lab.run import Run, Step, arms_runs, check_order, numbers_of, play
from slim_rl.config import Config, load_config, read_yaml
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.players import make_partner
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.errors import ConfigError, SlimError
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


def test_arms_cross_seeds_and_differ_in_own_keys_only() -> None:
    runs = plan(CONFIG, [], [0, 1], ["train.steps=7"])
    base = load_config(CONFIG, ["train.steps=7"])
    configs = [run.config for run in runs.values() if run.config]
    assert len(runs) == len(configs) == 2 * len(base.arms)
    assert [config.seed for config in configs] == [0] * len(base.arms) + [1] * len(base.arms)
    for name, config in zip(runs, configs, strict=True):
        assert (config.name, config.train.steps) == (name, 7) and name.endswith(f"{config.arm_name}-s{config.seed}")
        assert config.data == base.data and config.game == base.game and config.limits == base.limits
        words = runs[name].words
        assert load_config(Path(words[1]), words[3::2]) == config, "the command has the settings"
    kinds = of_arm(runs)
    assert kinds["mute"].partner.kind == "mute" and kinds["forthcoming"].partner.kind == "forthcoming"
    assert kinds["shuffled_reward"].train.reward == "shuffled" and kinds["frozen_policy"].train.frozen


def test_an_unknown_arm_is_named_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="no arm loud"):
        plan(CONFIG, ["loud"], [0])


@pytest.mark.parametrize("backend", ["slime", "verl"])
def test_the_controls_are_planned_for_a_cluster_too(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    arms = ["shy", "open_book", "frozen", "shuffled_reward", "agreement_only", "price_3", "yoked", "shaping"]
    if backend == "verl":
        arms = [
            arm for arm in arms if arm not in ("shuffled_reward", "shaping")
        ]  # they need a step's dialogues at once
    one_rate = ["train.lr_schedule=constant", "train.lr_decay_steps=0"]  # verl has no other
    runs = plan(CONFIG, arms, [3], [f"train.backend={backend}", "output_dir=runs/arms", *one_rate], ARMS)
    assert list(runs) == [f"matching_local-{arm}-s3" for arm in arms]
    logs = Path.cwd() / "runs/arms/matching_local-shy-s3/logs"
    assert f'partner.args.replay="{logs}"' in runs["matching_local-yoked-s3"].words


def test_options_reach_arms_of_a_config_and_no_experiment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--arm", "shy", "--arm", "mute", "--seeds", "3", "--backend", "slime", "--set", "train.steps=2"]
    with pytest.raises(SystemExit) as end:
        main(["lab", "run", str(CONFIG), "--dry-run", *options, "--", "--lr", "2e-6"])
    lines = capsys.readouterr().out.splitlines()
    assert end.value.code == 0 and [re.search(r"name=(\S+)", line)[1] for line in lines] == [  # type: ignore[index]
        "matching_local-shy-s3",
        "matching_local-mute-s3",
    ]
    assert all("--set train.steps=2 --set train.backend=slime " in line for line in lines)
    assert all(line.endswith(" -- --lr 2e-6") for line in lines)
    for option in (["--arm", "shy"], ["--seeds", "3"], ["--jobs", "2"], ["--set", "train.steps=2"], ["--", "--lr=1"]):
        with pytest.raises(SystemExit) as end:
            main(["lab", "run", str(ARMS.parent), "--dry-run", *option])
        assert end.value.code == 1 and "is an experiment: its steps have arms, seeds" in capsys.readouterr().err


def test_a_machine_without_the_backend_prints_the_plan(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(SystemExit) as end:
        main(["lab", "run", str(CONFIG), "--backend", "slime", "--arm", "shy", "--seeds", "3"])
    said = capsys.readouterr()
    assert end.value.code == 0 and said.out.count("\n") == 1 and "This is the plan, and nothing is run: " in said.err


def test_seeds_are_numbers_and_ranges() -> None:
    assert numbers_of("0, 2,5-7") == [0, 2, 5, 6, 7]
    for wrong in ("", "1;2", "1-", "-1", "1-2-3", "one", "3-1", "0-99999999", "0-600,0-600"):
        with pytest.raises(ConfigError, match=f"^'{wrong}' is not a list of at most 1,000 numbers and ranges"):
            numbers_of(wrong)


def test_what_a_backend_cannot_play_is_said_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"train\.loss is constant, which slime does not have"):
        plan(CONFIG, ["shy", "shuffled_constant"], [0], ["train.backend=slime"], ARMS)
    with pytest.raises(ConfigError, match=r"wsd, which verl does not have"):
        plan(CONFIG, ["shy"], [0], ["train.backend=verl"], ARMS)


def process(name: str, folder: Path, code: str, *needs: str) -> Run:
    """An arm's run that is a Python program."""
    return Run(name, ("-c", code), (sys.executable,), Config(output_dir=folder), needs)


def test_the_others_go_on_when_one_fails_and_it_is_named(tmp_path: Path) -> None:
    codes = {"good": 0, "bad": 3, "also-good": 0}
    runs = [process(name, tmp_path, f"print('{name}'); raise SystemExit({code})") for name, code in codes.items()]
    with pytest.raises(SlimError, match=r"^Failed: bad\. See .*/<run>\.out\."):
        play(Step(runs, jobs=2))
    assert [(tmp_path / f"{name}.out").read_text().strip() for name in codes] == list(codes)


def test_experiment_arms_play_the_same_games() -> None:
    base = load_config(CONFIG)
    runs = plan(CONFIG, [], [3], ["output_dir=runs/arms"], ARMS)
    configs = of_arm(runs)
    for arm, config in configs.items():
        assert config.data == base.data and config.limits == base.limits
        assert (config.policy == base.policy) == (arm != "silent")
        assert (config.game == base.game) == (arm != "open_book")
    assert configs["open_book"].game.open_book and configs["open_book"].partner == base.partner
    assert [configs[f"dose_{dose}"].partner.args["answers"] for dose in (25, 50, 75)] == [0.25, 0.5, 0.75]
    assert configs["agreement_only"].train.reward == "agreed" and configs["shaping"].train.reward == "turn_credit"
    assert (
        configs["shuffled_all"].train.reward_args["zeros"]
        and make_training_reward(configs["price_3"]).question_price == 0.03
    )
    assert make_training_reward(configs["shaping_near"]).decay == 0 and all(
        make_training_reward(config) for config in configs.values()
    )
    assert len({config.model_dump_json(exclude={"name", "arm"}) for config in configs.values()}) == len(runs)


def test_the_arms_on_what_is_asked_about_are_planned() -> None:
    runs = plan(ASKING, [], [3], ["output_dir=runs/asking"], ASKING_ARMS)
    assert runs["asking_local-yoked-s3"].needs == ("asking_local-terminal-s3",)
    configs = of_arm(runs)
    assert list(configs) == ["expected", "terminal", "yoked", "mute", "open_book"]
    base = load_config(ASKING)
    assert configs["expected"].changed(name="", arm="", seed=0, output_dir=base.output_dir) == base.changed(
        name="", arm="", seed=0
    )
    assert {arm for arm, config in configs.items() if not make_training_reward(config).by_turn} == {*configs} - {
        "expected"
    }
    assert {make_training_reward(config).question_price for config in configs.values()} == {0.004}


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
    assert yoked.needs == ("matching_local-shy-s4",) and not runs["matching_local-shy-s4"].needs
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


def test_at_the_end_stands_the_command_of_the_report(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("slim_rl.commands.lab.run.play", lambda step: None)
    config = str(ROOT / "examples" / "treasure.yaml")
    with pytest.raises(SystemExit):
        main(["lab", "run", config, "--arm", "honest", "--seeds", "0,1", "--set", f"output_dir={tmp_path}"])
    told = capsys.readouterr().out.splitlines()[-1]
    assert told.endswith(
        f"treasure-honest-s0/logs {tmp_path}/treasure-honest-s1/logs --game examples.treasure.Treasure"
    )


def test_runs_that_wait_for_each_other_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"The runs (one, two|two, one).* wait for each other's logs"):
        check_order([Run("one", (), needs=("two",)), Run("two", (), needs=("one",)), Run("three", ())])


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
