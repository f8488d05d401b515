"""Evaluation cells: resumable, comparable, with interventions that do what they say."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from examples.treasure import Treasure
from slim_rl.analysis.load import frame_of as frame
from slim_rl.analysis.report import answer
from slim_rl.commands.cells import Cell, evaluate, intervention
from slim_rl.commands.evaluate import cost_of
from slim_rl.config import parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.evaluation import play_held_out
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.players import make_partners
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import ConfigError, SlimError
from slim_rl.lab.interventions import INSTEAD, TRIES
from slim_rl.policies import weights_digest
from slim_rl.runs import lock_folder, record_settings
from tests.dialogue.players import Script
from tests.fakes.disk import largest_file

PLAN = "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel"


@pytest.fixture
def config(tmp_path: Any) -> Any:
    data = {
        "name": "cell",
        "game": {"n": 3, "scales": False},
        "data": {"train": f"{tmp_path}/train.jsonl", "eval": f"{tmp_path}/eval.jsonl", "num_train": 5, "num_eval": 12},
        "partner": {"kind": "shy", "args": {"accept_fraction": 0}},
    }
    return parse_config(data)


@pytest.fixture(scope="module")
def chat(tokenizer: Any) -> Chat:
    return Chat(tokenizer)


def held_out(config: Any, chat: Chat, policy: Any, log: Any, num_games: int = 8, trials: int = 1) -> list:
    rows = load_rows(config, "eval")[:num_games]
    return play_held_out(RolloutWorker(config, chat), rows, log, step=0, policy=policy, trials=trials)


def test_a_game_may_be_played_several_times(config, chat, tmp_path) -> None:
    log, hello = tmp_path / "cell.jsonl", "[message] Hello."
    once = held_out(config, chat, lambda job: Script(chat, [PLAN]), log, num_games=3)
    quiet = [hello] * 40  # never agrees

    everything = held_out(config, chat, lambda job: Script(chat, quiet), log, num_games=3, trials=3)
    assert len({d.id for d in everything}) == len({d.seed for d in everything}) == 9, "each another dialogue"
    assert {d.id for d in once} < {d.id for d in everything}, "the first trial is the one that is played without"
    assert all(len([d for d in everything if d.group == group]) == 3 for group in {d.group for d in everything})
    (played, references), _ = answer(everything)
    assert (played.rows[0]["games"], played.rows[0]["games agreed"][:5]) == ("3", "33.3%")
    assert {"solo", "random"} <= {row["plan"] for row in references.rows}


def test_forced_questions_are_informative_and_come_first(config, chat, tmp_path) -> None:
    made = intervention(config, "forced:2", Script(chat, [PLAN] * 8), chat)
    dialogues = held_out(config, chat, made, tmp_path / "forced.jsonl")
    for dialogue in dialogues:
        row, state = frame([dialogue]).iloc[0], dialogue.game_state
        worth = (np.array(state["mask2"], bool) & ~np.array(state["mask1"], bool)).sum()
        assert (row.questions, row.informative_pairs, row.informative_forced) == (0, 0, min(2, worth))
        assert dialogue.policy["intervention"].startswith("forced")
    (row,) = answer(dialogues)[0][0].rows
    assert row["questions per game"].startswith("0.000") and float(row["forced questions"].split()[0]) > 0


@pytest.mark.parametrize("question", ["Alice on GPT-3?", "Tell me Alice on GPT-3.", "| Alice | GPT-3 | ? |"])
def test_a_question_is_forbidden_in_a_games_own_names_too(config, chat, tmp_path, question: str) -> None:
    names = {"reviewers": ("Alice", "Bob", "Carol"), "papers": ("GPT-3", "T5", "XLNet")}
    config = config.changed(game=config.game.changed(**names))
    plan = "[propose]\nGPT-3: Alice\nT5: Bob\nXLNet: Carol"
    made = intervention(config, "forbidden", Script(chat, [f"[message] {question}", plan]), chat)
    (dialogue,) = held_out(config, chat, made, tmp_path / "forbidden.jsonl", num_games=1)
    assert [turn.text for turn in dialogue.turns if turn.role == "policy"] == [plan]


class Tagged(Treasure):
    tags = ("say",)


@pytest.mark.parametrize(("game", "says"), [(Treasure, INSTEAD), (Tagged, f"[say] {INSTEAD}")])
def test_forbidden_question_is_replaced_by_a_game_action(chat, tmp_path, game, says) -> None:
    data = {"train": f"{tmp_path}/t.jsonl", "eval": f"{tmp_path}/e.jsonl", "num_train": 1, "num_eval": 1}
    named = f"{game.__module__}.{game.__name__}"
    config = parse_config({"environment": named, "partner": {"kind": "honest"}, "data": data})
    made = intervention(config, "forbidden", Script(chat, ["Row A?"] * TRIES + ["1"]), chat)
    (dialogue,) = held_out(config, chat, made, tmp_path / "forbidden.jsonl", num_games=1)
    assert [turn.text for turn in dialogue.turns if turn.role == "policy"] == [says, "1"]


def test_partner_is_a_kind_a_member_or_the_mixture(config, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    gpt = {"share": 1, "kind": "openai", "openai": {"model": "gpt-4.1-mini"}}
    mixture = {"shy": 1, "lying": {"share": 1, "kind": "erring", "args": {"errs": 1.0}}}
    several = config.changed(partner={"mixture": mixture})
    cells = [Cell("scripted:greedy:2", name) for name in ("mixture", "lying", "mute")]
    played = evaluate(several, cells, tmp_path / "logs", 12).values()
    assert [{each.partner["kind"] for each in each_cell} for each_cell in played] == [
        {"shy", "lying"}, {"lying"}, {"mute"},
    ]  # fmt: skip
    assert {each.partner.get("errs") for each_cell in played for each in each_cell} == {None, 1.0}
    priced = cost_of(cells[0], config.changed(partner={"mixture": {"shy": 3, "gpt": gpt}}), 1000)
    assert [line.partition(",")[0] for line in priced] == ["partner gpt: 2"]  # 250 dialogues of 10 calls each
    with pytest.raises(ConfigError, match=r"^partner\.mixture\.gpt: No key .* OPENAI_API_KEY"):
        make_partners(config.changed(partner={"mixture": {"gpt": gpt}}))


def test_cells_are_named_after_what_they_are() -> None:
    assert Cell("runs/shy-s0/model", "mute", "forced:2").name == "shy-s0_mute_forced2"
    assert Cell("data/warmstart", "shy").name == "warmstart_shy_free"
    alone = parse_config({"environment": "examples.secret_number.SecretNumber"})
    assert alone.arm_name == alone.opposite.name == "none", "in a game for one"


OTHER = """
{seed: 1}
{partner: {args: {wordings: 2}}}
{limits: {turn_tokens: 7}}
{train: {reward: price, reward_args: {price: 0.1}}}
"""


def test_games_of_another_config_are_not_counted_as_its_own(config, tmp_path) -> None:
    cells, output = [Cell("scripted:greedy:2", "shy")], tmp_path / "logs"
    played = evaluate(config, cells, output, 4)
    (log,) = output.glob("*.jsonl")
    before, changes = log.read_bytes(), [yaml.safe_load(line) for line in OTHER.split("\n")[1:-1]]
    for change in changes:
        refused = rf"{log.name} was played with other values of {next(iter(change))}.*--output"
        with pytest.raises(ConfigError, match=refused):
            evaluate(config.changed(**change), cells, output, 4)
    assert log.read_bytes() == before
    harmless = config.changed(train={"steps": 3}, warmstart={"games": 7}, policy={"model": "another", "top_p": 0.5})
    assert evaluate(harmless, cells, output, 4) == played, "neither how it trains nor a model that does not play"
    log.unlink()
    assert evaluate(config.changed(**changes[0]), cells, output, 4), "what is removed is played anew"


def test_games_of_earlier_weights_are_not_counted(config, tmp_path) -> None:
    log, folder, moved = tmp_path / "cell.jsonl", tmp_path / "model", tmp_path / "moved"

    def claim(folder: Path) -> None:
        given = config.changed(policy={"model": str(folder)})
        record_settings(log, given, ["policy"], weights_digest(folder), "go elsewhere")

    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"one")
    claim(folder)
    log.write_text("{}\n")
    claim(folder)
    claim(folder.rename(moved))
    (moved / "model.safetensors").write_bytes(b"two")
    with pytest.raises(ConfigError, match="other values of the model's weights; go elsewhere"):
        claim(moved)


@pytest.mark.parametrize("size", [0, 5_000])
def test_a_full_disk_is_one_sentence(slim_rl, monkeypatch, tmp_path, size: int) -> None:
    changes = ["--set", "data={num_train: 4, num_eval: 4}", "--set", "train.games_per_step=4"]
    monkeypatch.chdir(tmp_path)
    slim_rl("generate", "matching_local", *changes)
    with largest_file(size):
        done = slim_rl("evaluate", "matching_local", "--checkpoint", "data/warmstart", "--games", "4", *changes)
    said = [line for line in done.stderr.splitlines() if not line.startswith("held-out games")]
    assert done.returncode == 1 and len(said) == 1, done.stderr
    assert said[0].startswith("slim-rl: Cannot ") and "make room" in said[0]


def test_what_a_log_was_played_by_holds_no_password(config: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"

    def record(host: str) -> None:
        given = config.changed(partner={"openai": {"base_url": f"http://bob:s3cret@{host}/v1"}})
        record_settings(log, given, ["partner"], None, "elsewhere")

    log.write_text("{}\n")
    record("host")
    written = log.with_suffix(".yaml").read_text()
    assert "http://***@host/v1" in written and "s3cret" not in written
    with pytest.raises(ConfigError, match="base_url"):
        record("other")


def test_what_is_named_twice_is_played_once(slim_rl, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    twice = ["--policy", "solo", "--partner", "mute", "--mode", "free"] * 2
    done = slim_rl("evaluate", "matching_local", *twice, "--games", "2", "--dry-run")
    assert (done.returncode, done.stdout) == (0, "solo_mute_free: 2 games\n"), done.stderr


def test_evaluate_into_a_locked_folder_is_refused(config, tmp_path) -> None:
    cells, output = [Cell("nowhere", "shy")], tmp_path / "logs"
    with (
        lock_folder(output, "The evaluation", "name another folder"),
        pytest.raises(SlimError, match=rf"evaluation in .*logs is in use by process {os.getpid()} .*--output"),
    ):
        evaluate(config, cells, output, 2)
    with pytest.raises(ConfigError, match=r"policy\.model"):  # the folder is free, and the model is looked for
        evaluate(config, cells, output, 2)
    assert not list(output.glob("*.jsonl"))
