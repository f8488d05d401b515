"""`slim-rl doctor` on machines well and ill: each fault is its own line with its fix, and none of them hides the others."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer
import yaml

from slim_rl.backends.doctor import EXAMINATIONS, Check, check_partner, examine
from slim_rl.commands.doctor import command
from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.games_file import ensure_games
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Turn
from slim_rl.errors import ConfigError
from tests.fakes.cluster import write_model


@pytest.fixture
def policy(tmp_path: Path, tokenizer: Any) -> Path:
    """A small checkpoint folder: a tokenizer with ChatML and a config.json."""
    folder = write_model(tmp_path, "Qwen3-0.6B", hidden_size=64, num_hidden_layers=2, vocab_size=400)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def config(tmp_path: Path, policy: Path) -> dict[str, Any]:
    data = {"train": f"{tmp_path}/games.jsonl", "eval": f"{tmp_path}/eval.jsonl", "num_train": 5, "num_eval": 2}
    settings = {"policy": {"model": str(policy)}, "output_dir": f"{tmp_path}/runs", "train": {"games_per_step": 4}}
    return {"game": {"n": 3, "scales": False}, "data": data, **settings}


def doctor(tmp_path: Path, config: dict[str, Any]) -> dict[str, Check]:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"slim_rl": config}))
    return {check.name: check for check in examine(load_config(path), EXAMINATIONS)}


def test_a_machine_that_is_well(tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slim_rl.commands.doctor.GAMES", 9)
    checks = doctor(tmp_path, config)
    assert {name: check for name, check in checks.items() if check.status == "fail"} == {}
    assert {"machine", "model", "partner"} <= checks.keys() and len(EXAMINATIONS) >= 5
    with pytest.raises(typer.Exit) as ended:
        command(tmp_path / "config.yaml")
    assert ended.value.exit_code == 0
    assert "prompt has" in checks["model"].finding and "shy answered" in checks["partner"].finding
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Qwen3-0.6B", "config.yaml"], "looking writes nothing"


def test_what_breaks_in_a_check_is_its_own_finding() -> None:
    def breaks(_: Config) -> Check:
        raise KeyError("scale1")

    def refuses(_: Config) -> Check:
        raise ConfigError("Too hot; cool it.")

    def works(_: Config) -> list[Check]:
        return [Check("c", "pass", "fine"), Check("d", "warn", "odd", "look")]

    checks = examine(Config(), {"a": breaks, "b": refuses, "c": works})
    assert [f"{check.name} {check.status}" for check in checks] == ["a fail", "b fail", "c pass", "d warn"]
    assert checks[0].finding == "KeyError: 'scale1'" and checks[0].fix
    assert checks[1] == Check("b", "fail", "Too hot; cool it.")


REFUSED = """
{limits: {context_tokens: 600, turn_tokens: 256}} | model | Raise limits.context_tokens.
{policy: {model: /}} | model | holds no model's config.json
{game: {n: 4}} | games | make it again
{train: {games_per_step: 6}} | games | too few for a step
{train: {backend: verl, lr_schedule: linear, games_per_step: 4}} | machine | which verl does not have
{partner: {kind: openai, openai: {base_url: 'http://127.0.0.1:9/v1'}}} | partner | Start what answers
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_a_start_would_refuse_fails(tmp_path: Path, config: dict[str, Any], line: str) -> None:
    change, check, says = line.split(" | ")
    ensure_games(Config.model_validate(config))
    checks = doctor(tmp_path, config | yaml.safe_load(change))
    assert checks[check].status == "fail" and says in checks[check].finding + checks[check].fix
    failed = {name for name, each in checks.items() if each.status == "fail"}
    assert failed & {"machine", "model", "games", "partner"} == {check}, "a fault is named once, and the rest looked at"


def test_template_without_an_end_token_fails(tmp_path: Path, config: dict[str, Any], policy: Path) -> None:
    template = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant: "
    path = policy / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    (policy / "chat_template.jinja").write_text(template)
    check = doctor(tmp_path, config)["model"]
    assert check.status == "fail" and "control token" in check.finding


def test_each_partner_of_a_mixture_is_asked(config: dict[str, Any]) -> None:
    mixture = {"shy": 1, "odd": {"share": 1, "kind": f"{__name__}.Stranger"}}
    shy, odd = check_partner(parse_config(config | {"partner": {"mixture": mixture}}))
    assert (shy.status, odd.status) == ("pass", "fail") and shy.finding.startswith("shy answered in")
    assert odd.finding.startswith("odd answered in") and "which the game refuses" in odd.finding


class Stranger(Partner):
    """A partner that knows no game's rules."""

    identity: ClassVar[dict[str, Any]] = {"kind": "stranger"}

    async def act(self, view: Any) -> Turn:
        return Turn("![hello")
