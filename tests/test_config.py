"""The configuration: strict, with one sentence for what is wrong."""

import ast
from operator import attrgetter
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from slim_rl.config import Config, load_config, parse_config
from slim_rl.config.trainers import from_anywhere, learned_settings
from slim_rl.dialogue.players import make_partner
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.environment import make_environment
from slim_rl.errors import ConfigError
from tests.paths import ROOT


def test_overrides_change_keys_and_are_yaml(tmp_path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("slim_rl: {game: {n: 4}}")
    config = load_config(path, ["partner.kind=mute", "game.scales=false", "train.lora={r: 4}", "slim_rl.seed=7"])
    assert (config.game.n, config.partner.kind, config.game.scales, config.seed) == (4, "mute", False, 7)
    assert config.train.lora is not None and config.train.lora.r == 4
    left_out = parse_config({"train": {"lora": None}}, ["train.lora.r=8"])
    assert left_out.train.lora is not None and left_out.train.lora.r == 8
    assert config.changed(output_dir="x", name="a").run_dir == Path("x/a")
    with pytest.raises(ConfigError, match=r"'stepz' is not a key .*did you mean 'steps'\?"):
        config.changed(train={"stepz": 3})
    with pytest.raises(ValidationError):
        config.seed = 3  # type: ignore[misc]


def test_section_override_keeps_unnamed_keys() -> None:
    began = {
        "game": {"n": 3, "p_observed": 0.2},
        "train": {"steps": 9, "learning_rate": 1e-3},
        "partner": {"kind": "openai", "openai": {"model": "a", "concurrency": 5}, "args": {"max_pairs": 1}},
    }
    changes = ["train={steps: 3}", "game={n: 4}", "partner={kind: shy, openai: {model: b}, args: {}}"]
    config = parse_config(began, changes)
    assert (config.train.steps, config.train.learning_rate) == (3, 1e-3)
    assert (config.game.n, config.game.p_observed) == (4, 0.2)
    assert (config.partner.kind, config.partner.openai.model, config.partner.openai.concurrency) == ("shy", "b", 5)
    assert config.partner.args == {}
    assert parse_config(began, ["game={}"]).game == Config().game


REFUSED = (ROOT / "tests" / "refused_configs.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_wrong_with_a_config_is_a_sentence(line: str) -> None:
    """Each line: changes of the defaults, or a whole file => what the sentence says."""
    words, _, says = line.partition(" => ")
    data, changes = (yaml.safe_load(words), []) if words[0] in "[{" else ({}, words.split(" ; "))
    with pytest.raises(ConfigError, match=says):
        config = parse_config(data, changes)
        make_environment(config)
        make_partner(config)
        make_training_reward(config)


def test_a_config_for_another_folder_has_absolute_paths(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    partner = {
        "kind": "yoked",
        "args": {"replay": "logs"},
        "openai": {"cassette": "/shared/a.sqlite", "prompt": "rules.md"},
    }
    given = {"data": {"train": "games.jsonl", "eval": None}, "partner": partner}
    config = from_anywhere(parse_config(given))
    assert (config.data.train, config.data.eval) == (tmp_path / "games.jsonl", None)
    openai = config.partner.openai
    assert (config.partner.args["replay"], openai.prompt) == (str(tmp_path / "logs"), tmp_path / "rules.md")
    assert str(openai.cassette) == "/shared/a.sqlite"
    members = {"twin": partner | {"share": 1}, "shy": 1}
    twin = from_anywhere(parse_config(given | {"partner": {"mixture": members}})).members["twin"].partner
    assert (twin.args["replay"], twin.openai.prompt) == (str(tmp_path / "logs"), tmp_path / "rules.md")


def test_a_kind_replaces_a_mixture_by_any_change(tmp_path) -> None:
    mixture = {"shy": 3, "lying": {"share": 1, "kind": "erring", "args": {"errs": 0.5}}}
    data = {"partner": {"mixture": mixture, "args": {"max_pairs": 1}}}
    several = parse_config(data)
    assert several.arm_name == several.opposite.name == "mixture" and several.shares == {"shy": 0.75, "lying": 0.25}
    lying = several.members["lying"]
    assert (lying.opposite.name, lying.partner.args) == ("erring", {"max_pairs": 1, "errs": 0.5})
    several.write(tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == several
    given = [parse_config(data, [change]) for change in ("partner.kind=shy", "partner={kind: shy}")]
    for one in (*given, several.changed(partner={"kind": "shy"})):
        assert list(one.members) == ["shy"] and not one.partner.mixture
    settings = learned_settings(several)
    assert {key for key in settings if "mixture" in key} == {
        *(f"partner.mixture.lying.{key}" for key in ("share", "kind", "args.errs")), "partner.mixture.shy.share",
    }  # fmt: skip
    absolute = parse_config(
        {"partner": {"mixture": {"gpt": {"share": 1, "openai": {"prompt": str(tmp_path / "a.md")}, "kind": "openai"}}}}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert learned_settings(absolute)["partner.mixture.gpt.openai.prompt"] == "a.md", "of one arm on any machine"


BROKEN = """
a: [1 => c\\.yaml is not valid YAML
slim_rl: !!python/object/apply:pathlib.Path.touch [ran] => c\\.yaml is not valid YAML
slim_rl: {train: {stepz: 3}} => c\\.yaml: .*did you mean 'train\\.steps'\\?$
slim_rl: {train: {learning_rate: 1.0e-3}, seed: 1, train: {steps: 3}} => c\\.yaml.*'train' stands twice.*line 1
"""


@pytest.mark.parametrize("line", BROKEN.strip().splitlines())
def test_a_broken_file_is_named(tmp_path: Path, line: str) -> None:
    content, _, says = line.partition(" => ")
    path = tmp_path / "c.yaml"
    with pytest.raises(ConfigError, match=r"c\.yaml"):
        load_config(path)
    path.write_text(content)
    with pytest.raises(ConfigError, match=says):
        load_config(path)


def test_a_merged_key_may_stand_again(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text("slim_rl:\n  game: &board {n: 4, max_turns: 9}\n  arms: {more: {<<: *board, n: 5}}\n")
    assert load_config(path).arms == {"more": {"n": 5, "max_turns": 9}}


READ = (ROOT / "tests" / "read_configs.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", READ)
def test_override_of_a_string_or_list_is_read_as_written(line: str, tmp_path: Path) -> None:
    """Each line: a change of the defaults => the value that the config has, and has again once it is written."""
    override, _, value = line.partition(" => ")
    config = parse_config({}, [override])
    config.write(tmp_path / "config.yaml")
    for each in (config, load_config(tmp_path / "config.yaml")):
        assert attrgetter(override.partition("=")[0])(each) == ast.literal_eval(value)
