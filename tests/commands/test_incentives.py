"""`slim-rl lab incentives --price`: what askers on paper earn where a question costs something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slim_rl.cli import main
from slim_rl.commands import load
from slim_rl.config import load_config
from slim_rl.errors import ConfigError
from slim_rl.lab.incentives.question_cost import net_rewards
from tests.paths import ROOT

LOCAL = str(ROOT / "configs" / "matching_local.yaml")


def test_higher_question_cost_lowers_questions_and_gain() -> None:
    cheap, dear = (
        {each.name: each for each in net_rewards(load_config(LOCAL), 200, [price])} for price in (0.01, 0.03)
    )
    never, ideal = "never asks", "greedy, stops by expected gain"
    assert cheap[never].net == dear[never].net and cheap[never].questions == 0
    for name in cheap.keys() - {never}:
        assert dear[name].questions < cheap[name].questions and dear[name].net.value < cheap[name].net.value
    for found in (cheap, dear):
        assert found[ideal].net.value == max(each.net.value for each in found.values())


def test_gain_of_choice_is_over_a_random_asker_with_interval() -> None:
    found = {each.name: each for each in net_rewards(load_config(LOCAL), 200, [0.01], most=4)}
    rule = "fixed number of questions"
    greedy, random = found[f"greedy, {rule}"], found[f"random, {rule}"]
    assert random.choice is None and greedy.choice is not None and greedy.questions <= 4
    assert greedy.choice.value == pytest.approx(greedy.net.value - random.net.value)
    paired, apart = (greedy.choice.high - greedy.choice.low), (greedy.net.high - greedy.net.low)
    assert 0 < paired < 2 * apart


def test_a_game_without_a_frontier_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"--price needs the classmethod .*SecretNumber\.frontier"):
        net_rewards(load_config(str(ROOT / "examples" / "secret_number.yaml")), 5, [0.01])


def test_the_command_prints_each_price(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["slim-rl", "lab", "incentives", LOCAL, "--games", "20", "--price", "0.01", "--price", "0.02"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().out
    assert not ended.value.code and said.count("never asks") == 2 and "0.02" in said


def test_the_files_are_written_before_anything_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slim_rl.commands.lab.incentives.Console", None)  # whoever reads along has left
    words = [LOCAL, "--games", "5", "--questions", "1", "--output-dir", str(tmp_path)]
    with pytest.raises(TypeError):
        load("lab incentives")(words, standalone_mode=False)
    assert (tmp_path / "incentives.json").stat().st_size and (tmp_path / "incentives.png").stat().st_size
    rewards = [line["reward"] for line in json.loads((tmp_path / "incentives.json").read_text())["lines"]]
    assert all(0 <= reward["low"] <= reward["value"] <= reward["high"] <= 1 for reward in rewards), "as rewards are"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--questions", "2,-1"], "--questions 2,-1 is not a list of positive numbers"),
        (["--questions", "1,x"], "--questions 1,x is not a list"),
        (["--price", "0.02", "--output-dir", "found"], "writes no files. Leave out --live, --questions and"),
        (["--price", "0.02", "--live"], "plays no games"),
        (["--price", "0.02", "--questions", "1,2"], "plays no games"),
        (["--most", "3"], "--most needs --price"),
    ],
)
def test_what_would_have_no_effect_is_refused(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load("lab incentives")([LOCAL, "--games", "5", *words], standalone_mode=False)
