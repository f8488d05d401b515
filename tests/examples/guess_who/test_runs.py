"""Guess Who as a run has it: with a chat model as its partner, taught, trained, evaluated and reported, all by the project's own commands."""

import re
from pathlib import Path
from typing import Any

import pytest

from examples.guess_who.players import Demonstrator
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.log import annotate, read_log
from slim_rl.dialogue.record import StopReason
from slim_rl.dialogue.worker import RolloutWorker
from tests.examples.guess_who.test_game import local
from tests.examples.sessions import whole_run
from tests.fakes.openai_server import OpenAIServer


def shy_model(body: dict[str, Any]) -> str:
    """A chat model that keeps to the rules it is sent: it finds the hidden character on the board that it is sent."""
    sent = "\n".join(message["content"] for message in body["messages"])
    hidden = re.search(r"The hidden character is (\w+)\.", sent)
    assert hidden and "Answer each question truly" in sent
    traits = re.search(rf"^{hidden[1]}: (.*)$", sent, re.MULTILINE)
    asked = re.findall(r"^> \[ask\] (.*)$", sent, re.MULTILINE)[-1]
    return f"[answer] {'yes' if traits and asked in traits[1].split(', ') else 'no'}"


async def test_a_chat_model_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    async with OpenAIServer(answer=shy_model) as server:
        config = local(tmp_path, "partner.kind=openai", f"partner.openai.base_url={server.url}", "game.rules=full")
        worker = RolloutWorker(config, None, Demonstrator((0.0, 0.0, 0.0, 0.0, 1.0)))
        played = [await worker.play(worker.spec(row, "test")) for row in load_rows(config, "eval")[:4]]
    for (dialogue,) in played:
        assert dialogue.stop_reason is StopReason.FINISHED, dialogue.failure
        annotate(dialogue)
        assert dialogue.turns[-1].best_known, "the hidden character fits all four answers"


@pytest.mark.usefixtures("unprinted")
def test_it_is_taught_trained_evaluated_and_reported(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from slim_rl.lab.warmstart.train import warmstart

    config = local(
        tmp_path,
        "game.size=3",
        "warmstart={games: 30, lessons: {asked: 30}, hidden_size: 32, layers: 1, tokenizer_games: 30}",
        f"policy.model={tmp_path / 'start'}",
        "train={steps: 2, games_per_step: 2, group_size: 2, micro_batch: 4, eval_games: 2, backend: trl}",
        "limits={turn_tokens: 8, truncated_turn: continue, dialogue_tokens: 200}",
    )
    taught = config.changed(limits={"turn_tokens": 64, "dialogue_tokens": 1000})
    warmstart(taught, tmp_path / "start")
    result, _, summary = whole_run(config, tmp_path, "shy", 3)
    assert len(result.before) == len(result.after) == 2
    trained = list(read_log(result.log_dir / "train.jsonl"))
    assert len(trained) == 8 and all(dialogue.columns["board"] == 3 for dialogue in trained)
    assert {"greedy"} == set(summary.results["frontier"])
    assert {"random"} == set(summary.results["references"])
