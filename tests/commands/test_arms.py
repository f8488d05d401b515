"""Experiments: arms times seeds as separate runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slim_rl.cli import main
from slim_rl.commands.lab.arms import Run, conclusion, in_order, parse_seeds, plan, run_all
from slim_rl.config import load_config
from slim_rl.dialogue.factory import make_partner
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.errors import ConfigError, SlimError
from tests.analysis.synthetic import make_board
from tests.analysis.synthetic import make_dialogue as made_up
from tests.paths import ROOT

CONFIG = ROOT / "configs" / "matching_local.yaml"
ARMS = ROOT / "analysis" / "experiment.yaml"
ASKING, ASKING_ARMS = ROOT / "configs" / "asking_local.yaml", ROOT / "analysis" / "asking" / "experiment.yaml"


def test_arms_cross_seeds_and_differ_in_own_keys_only() -> None:
    runs = plan(CONFIG, [], [0, 1], ["train.steps=7"])
    base = load_config(CONFIG, ["train.steps=7"])
    assert len(runs) == 2 * len(base.arms) and len({run.name for run in runs}) == len(runs)
    assert [run.seed for run in runs] == [0] * len(base.arms) + [1] * len(base.arms)
    for run in runs:
        config = load_config(CONFIG, run.overrides)
        assert (config.arm_name, config.seed, config.train.steps) == (run.arm, run.seed, 7)
        assert config.data == base.data and config.game == base.game and config.limits == base.limits
    kinds = {run.arm: load_config(CONFIG, run.overrides) for run in runs}
    assert kinds["mute"].partner.kind == "mute" and kinds["forthcoming"].partner.kind == "forthcoming"
    assert kinds["shuffled_reward"].train.reward == "shuffled" and kinds["frozen_policy"].train.frozen


def test_an_unknown_arm_is_named_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="no arm loud"):
        plan(CONFIG, ["loud"], [0])


@pytest.mark.parametrize("backend", ["slime", "verl"])
def test_the_controls_are_planned_for_a_cluster_too(
    backend: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    arms = ["shy", "open_book", "frozen", "shuffled_reward", "agreement_only", "price_3", "yoked", "shaping"]
    options = [option for arm in arms for option in ("--arm", arm)]
    one_rate = ["--set=train.lr_schedule=constant", "--set=train.lr_decay_steps=0"]  # verl has no other
    told = ["lab", "arms", str(CONFIG), "--arms", str(ARMS), "--backend", backend, "--seeds", "3", *one_rate, *options]
    with pytest.raises(SystemExit) as end:
        main([*told, "--", "--lr", "2e-6"] if backend == "slime" else told)
    assert end.value.code == 0
    said = capsys.readouterr()
    lines = {line.partition(":")[0]: line for line in said.out.splitlines()}
    assert [name.removesuffix("-s3").removeprefix("matching_local-") for name in lines] == arms
    assert all(f"train.backend={backend}" in line for line in lines.values())
    shy, yoked = lines["matching_local-shy-s3"], lines["matching_local-yoked-s3"]
    if backend == "slime":
        assert shy.endswith("-- --lr 2e-6")
    assert f'partner.replay="{Path.cwd()}/runs/matching_local-shy-s3/logs"' in yoked
    assert "This is the plan, and nothing is run: " in said.err, "a machine without a GPU"


def test_seeds_are_numbers_and_ranges() -> None:
    assert parse_seeds("0, 2,5-7") == [0, 2, 5, 6, 7]
    for wrong in ("", "1;2", "1-", "-1", "1-2-3", "one"):
        with pytest.raises(ConfigError, match=f"^--seeds {wrong} is not a list of whole numbers and ranges"):
            parse_seeds(wrong)
    with pytest.raises(ConfigError, match=r"has an empty range\. Begin a range with its smallest number"):
        parse_seeds("3-1")
    for many in ("0-99999999", "0-600,0-600"):
        with pytest.raises(ConfigError, match=r"names more than 1,000 seeds, one run per arm each. Name fewer\.$"):
            parse_seeds(many)


def test_what_a_backend_cannot_play_is_said_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"train\.loss is constant, which slime does not have"):
        plan(CONFIG, ["shy", "shuffled_constant"], [0], ["train.backend=slime"], ARMS)
    with pytest.raises(ConfigError, match=r"wsd, which verl does not have"):
        plan(CONFIG, ["shy"], [0], ["train.backend=verl"], ARMS)


class Echo(Run):
    """A run whose command writes its name and fails if it is told to."""

    def command(self, config: Path) -> list[str]:
        return [sys.executable, "-c", f"print('{self.name}'); raise SystemExit({self.seed})"]


def test_the_others_go_on_when_one_fails_and_it_is_named(tmp_path) -> None:
    runs = [Echo("good", "a", 0, ()), Echo("bad", "a", 3, ()), Echo("also-good", "a", 0, ())]
    with pytest.raises(SlimError, match="bad") as error:
        run_all(CONFIG, runs, 2, tmp_path)
    assert "also-good" not in str(error.value)
    assert [(tmp_path / f"{run.name}.out").read_text().strip() for run in runs] == ["good", "bad", "also-good"]


def test_experiment_arms_play_the_same_games() -> None:
    base = load_config(CONFIG)
    runs = plan(CONFIG, [], [3], ["log.dir=logs/arms"], ARMS)
    configs = {run.arm: load_config(CONFIG, run.overrides) for run in runs}
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
    runs = {run.arm: run for run in plan(ASKING, [], [3], ["log.dir=logs/asking"], ASKING_ARMS)}
    assert list(runs) == ["expected", "terminal", "yoked", "mute", "open_book"]
    assert runs["yoked"].needs == ("asking_local-terminal-s3",)
    configs = {arm: load_config(ASKING, run.overrides) for arm, run in runs.items()}
    base = load_config(ASKING)
    assert configs["expected"].changed(name="", arm="", seed=0, log=base.log) == base.changed(name="", arm="", seed=0)
    assert {arm for arm, config in configs.items() if not make_training_reward(config).by_turn} == {*configs} - {
        "expected"
    }
    assert {make_training_reward(config).question_price for config in configs.values()} == {0.004}


@pytest.mark.parametrize(("config", "arms"), [(CONFIG, ARMS), (ASKING, ASKING_ARMS)])
def test_every_arms_partner_can_be_made(config: Path, arms: Path, tmp_path: Path, make_dialogue: Any) -> None:
    told = "[message] Ava Li on Electra: 90."
    with DialogueLog(tmp_path / "shy" / "train.jsonl") as log:
        log.append(make_dialogue("[message] What is Ava Li on Electra?", told))
    for run in plan(config, [], [3], [], arms):
        settings = load_config(config, run.overrides)
        if run.needs:
            settings = load_config(config, [*run.overrides, f"partner.replay={tmp_path / 'shy'}"])
        partner = make_partner(settings)
        assert partner is not None and partner.identity["kind"] == settings.partner.kind, run.arm


def test_run_waits_for_the_log_of_its_twin(tmp_path: Path) -> None:
    runs = {run.name: run for run in plan(CONFIG, ["shy", "yoked"], [3, 4], ["log.dir=logs/arms"], ARMS)}
    yoked = runs["matching_local-yoked-s4"]
    assert yoked.needs == ("matching_local-shy-s4",) and not runs["matching_local-shy-s4"].needs
    assert load_config(CONFIG, yoked.overrides).partner.replay == Path("logs/arms/matching_local-shy-s4")

    class Writes(Run):
        def command(self, config: Path) -> list[str]:
            work = f"import pathlib, time; time.sleep({self.seed}); pathlib.Path(r'{tmp_path}/log').write_text('x')"
            return [sys.executable, "-c", work]

    class Reads(Run):
        def command(self, config: Path) -> list[str]:
            return [sys.executable, "-c", f"open(r'{tmp_path}/log')"]

    run_all(CONFIG, [Writes("first", "a", 1, ()), Reads("second", "b", 0, (), ("first", "elsewhere"))], 2, tmp_path)
    with pytest.raises(SlimError, match="bad, second"):
        run_all(CONFIG, [Echo("bad", "a", 3, ()), Reads("second", "b", 0, (), ("bad",))], 2, tmp_path / "again")
    assert not (tmp_path / "again" / "second.out").exists()


@pytest.mark.parametrize("text", ["- shy", "shy: 3", "shy: {a: [", "3: {a: b}"])
def test_a_file_that_is_not_of_arms_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "arms.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"arms\.yaml is not (a YAML file of arms|valid YAML)") as caught:
        plan(CONFIG, [], [0], file=tmp_path / "arms.yaml")
    assert "\n" not in str(caught.value)


def test_at_the_end_stands_what_each_arm_learned_over_its_seeds(tmp_path: Path) -> None:
    overrides = [f"log.dir={tmp_path}", "name=exp"]
    runs = plan(CONFIG, ["shy", "mute"], [0, 1], overrides)
    assert "No held-out games" in conclusion(CONFIG, runs, "exp")[0]
    rng = np.random.default_rng(0)
    boards = [(f"g{n}", make_board(rng, 3)) for n in range(12)]
    for run in runs:
        for step, asks in ((0, 0), (28, 1), (56, 2 if run.arm == "shy" else 0)):
            with DialogueLog(tmp_path / run.name / f"eval-{step:06}.jsonl") as log:
                for name, board in boards:
                    fields = {"id": f"eval/{name}", "game_id": name, "run": run.name, "phase": "eval", "step": step}
                    log.append(made_up(rng, board, asks, run.arm, **fields))
    shy, mute, more = conclusion(CONFIG, runs, "exp")
    assert shy.startswith("shy: It learned to ask: from 0.000 to 2.00 questions per game (+2.00, ")
    assert "12 held-out games, each played before and after by each of 2 seeds" in shy
    assert mute.startswith("mute: It did not clearly learn to ask: from 0.000 to 0.000")
    assert all(str(tmp_path / run.name) in more for run in runs) and more.endswith("--output plots/exp")


def test_the_report_of_a_game_of_ones_own_is_told_the_game(tmp_path: Path) -> None:
    config = ROOT / "examples" / "treasure.yaml"
    runs = plan(config, ["honest"], [0], [f"log.dir={tmp_path}"])
    assert conclusion(config, runs, "exp")[-1].endswith("--output plots/exp --game examples.treasure.Treasure")


def test_runs_are_ordered_by_the_logs_they_read() -> None:
    runs = plan(CONFIG, ["yoked", "shy", "shy"], [3, 3], ["log.dir=logs/arms"], ARMS)
    assert [run.arm for run in runs] == ["shy", "yoked"]


def test_arms_that_wait_for_each_other_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match="arms one, two wait for each other"):
        in_order([Run("one", "one", 0, (), ("two",)), Run("two", "two", 0, (), ("one",)), Run("three", "three", 0, ())])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_runs(number: int, tmp_path: Path) -> None:
    class Sleeps(Run):
        def command(self, config: Path) -> list[str]:
            return ["sh", "-c", "echo $$; exec sleep 600"]

    def send() -> None:
        while not all(path.exists() and path.read_text() for path in outs):
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    runs = [Sleeps("one", "a", 0, ()), Sleeps("two", "a", 1, ()), Sleeps("three", "a", 2, ())]
    outs = [tmp_path / "one.out", tmp_path / "two.out"]
    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(SystemExit) as ended:
        run_all(CONFIG, runs, 2, tmp_path)
    sender.join()
    assert ended.value.code == 128 + number and not (tmp_path / "three.out").exists()
    assert not any(Path(f"/proc/{path.read_text().strip()}").exists() for path in outs)
