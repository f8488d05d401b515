"""The user simulator: every task can be solved by asking, a model may be the user, and each trainer, evaluation and report has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from examples.user_simulator import PERSONA, RULES, UserSimulator, reward
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import GameRow, load_rows
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import DataError
from slim_rl.lab import incentives
from tests.dialogue.players import Script
from tests.examples.guess_who.test_game import STATE
from tests.examples.sessions import config_in, played_by_hand, said, whole_run
from tests.fakes.openai_server import OpenAIServer, Step
from tests.paths import ROOT
from tests.stories.backends import BACKENDS, Story

TASKS = [json.loads(line) for line in (ROOT / "examples" / "user_simulator.jsonl").read_text().splitlines()]
HIKE = TASKS[-1]
GUESS_WHO = ROOT / "examples" / "guess_who" / "guess_who_local.yaml"
WRONG_SEATS = [
    ("treasure", {"treasure": [1, 1]}, "Yes."), ("user_simulator", HIKE, "Hm."), (GUESS_WHO, STATE, "[answer] yes"),
]  # fmt: skip


def play(tokenizer: Any, *turns: str, task: dict[str, Any] = HIKE) -> Dialogue:
    return said(config_in(Path("runs"), "user_simulator"), tokenizer, turns, task)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["answer"])
def test_a_task_is_solved_by_asking_about_each_fact(tokenizer: Any, task: dict[str, Any]) -> None:
    questions = [f"What about the {fact}?" for fact in task["known"]]
    dialogue = play(tokenizer, *questions, f"I know now. answer: {task['answer'].upper()}.", task=task)
    assert (dialogue.reward, dialogue.stop_reason) == (1.0, StopReason.FINISHED)
    assert [turn.informative for turn in dialogue.turns[::2]] == [*([(fact,)] for fact in task["known"]), []]
    assert not any(value in dialogue.prompt[-1]["content"] for value in task["known"].values())
    assert play(tokenizer, "Answer: 5", task=task).reward == 0.0


def test_questions_are_counted_by_what_they_brought_out(tokenizer: Any) -> None:
    turns = ["How many people?", "Hello.", "Nice weather?", "Again: how many people, for how many hours?", "Answer: 12"]
    task = HIKE | {"known": {fact.title(): value for fact, value in HIKE["known"].items()}}  # its case does not matter
    dialogue = play(tokenizer, *turns, task=task)
    assert [turn.questions for turn in dialogue.turns[::2]] == [["fact"], [], ["vain"], ["fact"], []]
    assert dialogue.turns[6].pairs == [("People",), ("Hours",)] and dialogue.turns[6].informative == [("Hours",)]
    assert dialogue.columns == {"facts": 3, "told": 2}
    found = measures(dialogue)
    assert (found["questions"], found["questions/vain"], found["informative_pairs"], dialogue.reward) == (3, 1, 2, 0.0)


def test_assistant_that_never_answers_gets_nothing(tokenizer: Any) -> None:
    dialogue = play(tokenizer, "", *["Hm?"] * 6)
    assert (dialogue.reward, dialogue.stop_reason, len(dialogue.turns)) == (0.0, StopReason.MAX_TURNS, 12)
    assert reward(" G. ", {"answer": "G"}) == 1.0 and reward("C or G", {"answer": "G"}) == 0.0


async def test_model_is_the_user_in_its_persona(tmp_path: Path, tokenizer: Any) -> None:
    async with OpenAIServer(script=[Step(text="We are FOUR of us.")]) as server:
        endpoint = f"partner.openai={{base_url: '{server.url}', model: {server.model}, budget_usd: null}}"
        config, chat = config_in(tmp_path, "user_simulator", "partner.kind=openai", endpoint), Chat(tokenizer)
        worker = RolloutWorker(config, chat, Script(chat, ["How many people?", "Answer: 8"]))
        (dialogue,) = await worker.play(worker.spec(GameRow.of(UserSimulator(), "g", HIKE, 0), "test"))
        system, knows = (message["content"] for message in server.requests[0]["messages"])
    annotate(dialogue)
    assert PERSONA in system and RULES not in system and "- people: four of us" in knows and "How many people?" in knows
    assert (dialogue.reward, dialogue.turns[0].informative) == (1.0, [("people",)])


@pytest.mark.parametrize(("example", "state", "turn"), WRONG_SEATS)
def test_scripted_partner_in_the_other_seat_is_named(tokenizer: Any, example: str, state: Any, turn: str) -> None:
    dialogue = said(config_in(Path("runs"), example), tokenizer, [turn], state, seat=1)
    assert dialogue.stop_reason is StopReason.PARTNER_FAILED and "set data.seat to 0" in (dialogue.failure or "")


def test_own_tasks_are_split_or_named_if_missing(tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text("".join(json.dumps({**HIKE, "answer": str(number)}) + "\n" for number in range(3)))
    config = config_in(tmp_path, "user_simulator", f"game.tasks={own}", "data.num_train=2", "data.num_eval=1")
    longer = config.changed(game={"tasks": str(own), "max_turns": 20})  # plays the same files
    sides = load_rows(config, "train"), load_rows(config, "eval"), load_rows(longer, "train")
    answers = [[row.game_state["answer"] for row in rows] for rows in sides]
    assert answers == [["1", "2"], ["0"], ["1", "2"]]
    with pytest.raises(DataError, match=r"Cannot read the tasks .*game\.tasks"):
        load_rows(config_in(tmp_path / "new", "user_simulator", "game.tasks=nope"))


def test_person_plays_and_doctor_says_that_asking_pays(tmp_path: Path) -> None:
    config = config_in(tmp_path, "user_simulator", "data.num_eval=4")
    gained, screen = played_by_hand(config, ["What is the destination?", "Answer: 4"])
    assert gained == 1.0 and "partner> destination: the fish market" in screen
    assert incentives.measure(config, 30).rewards_asking


def speak(text: str) -> str:
    """Returns a turn that asks about each fact of the task that it reads, then answers."""
    task = next(task for task in TASKS if task["scenario"] in text)
    unasked = [fact for fact in task["known"] if f"the {fact}?" not in text]
    return f"What is the {unasked[0]}?" if unasked else f"Answer: {task['answer']}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_trainer_plays_it(backend: Any, tokenizer: Any, tmp_path: Path) -> None:
    story = Story("examples.user_simulator.UserSimulator", {"kind": "scripted"}, {}, speak)
    found = backend(story, tokenizer, tmp_path)
    assert found["questions/fact"] == found["informative_pairs"] == found["questions"] >= 1
    assert found["questions/vain"] == 0


@pytest.mark.usefixtures("unprinted")
def test_it_trains_is_evaluated_and_reported(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from examples.train import make_model

    small = "train={steps: 1, games_per_step: 2, group_size: 2, micro_batch: 4, eval_games: 2}"
    config = config_in(tmp_path, "user_simulator", "game.max_turns=4", small)
    make_model(config)
    _, played, summary = whole_run(config, tmp_path, "scripted", 2)
    assert all(dialogue.turns[0].informative for dialogue in played["forced:1"])
    assert summary.results["question_kinds"]["fact"] == "that brought out a fact"
