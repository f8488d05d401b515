"""The environment package of verifiers, run by verifiers' own rollout code and by its vf-eval against servers on loopback."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import StopReason
from slim_rl.session import Games
from tests.adapters.played import ASK, OTHER, PROPOSE, WORDS, by_worker, line
from tests.fakes.openai_server import OpenAIServer, Step
from tests.paths import ROOT

vf = pytest.importorskip("verifiers.v1", reason="pip install -e environments/slim_rl_matching")
GAME = ["game.n=2", "game.scales=false", "game.hardness=0", "game.max_turns=6", "game.max_errors=2", "seed=5"]
MODEL = "policy"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def reciting(words: Sequence[str]) -> OpenAIServer:
    """A model that says these words one after another in each conversation."""

    def answer(body: dict[str, Any]) -> str:
        return words[sum(message["role"] == "assistant" for message in body["messages"])]

    return OpenAIServer(answer=answer, model=MODEL)


async def run(server: OpenAIServer, rollouts: int = 1, **given: Any) -> list[Any]:
    """All tasks of the environment, as verifiers plays them."""
    from slim_rl_matching import load_environment

    env = load_environment(**{"num_games": 2, "overrides": GAME} | given)
    context = vf.ModelContext(
        client=vf.EvalClientConfig(base_url=server.url, api_key_var="NO_KEY"), model=MODEL, sampling=vf.SamplingConfig()
    )
    async with env.serving():
        slots = [slot for task in env.taskset for slot in env.slots(task, rollouts)]
        return list(await asyncio.gather(*(env.run_slot(slot, context) for slot in slots)))


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("words", [*WORDS, ["<think>\nHm.\n</think>\n" + ASK, PROPOSE, ASK, PROPOSE, ASK]])
async def test_a_rollout_is_the_workers(words: list[str], seat: int, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    async with reciting(words) as server:
        episodes = await run(server, rollouts=2, overrides=[*GAME, f"data.seat={seat}"], log=log)
    assert [episode.ok for episode in episodes] == [True] * 4
    games = Games(overrides=[*GAME, f"data.seat={seat}"], scope="verifiers")
    rows = {row.name: row for row in games.deal("train", 2)}
    logged = {dialogue.id: dialogue for dialogue in read_log(log)}
    assert len(logged) == 4
    for episode in episodes:
        (trace,) = episode.traces
        dialogue = logged[trace.info["dialogue"]]
        expected = await by_worker(games, rows[episode.task.data.name], words, int(dialogue.id.rpartition("/")[2]))
        assert line(dialogue) == line(expected)
        assert trace.reward == expected.reward
        assert trace.metrics["agreed"] == (expected.stop_reason is StopReason.AGREED)
        assert "questions" in trace.metrics
        said = [turn for turn in dialogue.turns if turn.role == "policy"]
        assert len(trace.assistant_messages) == len(said)
        # what the model was sent opens with the prompt of the log
        assert [message.content for message in trace.messages[: len(dialogue.prompt)]] == [
            message["content"] for message in dialogue.prompt
        ]


def check_sides(policy: OpenAIServer, partner: OpenAIServer) -> None:
    """Each side is sent its own rules."""
    for server, partners in ((partner, True), (policy, False)):
        assert {"shy" in request["messages"][0]["content"] for request in server.requests} == {partners}


async def test_the_partner_may_be_a_chat_model() -> None:
    async with reciting([ASK, PROPOSE]) as server, OpenAIServer() as partner:
        episodes = await run(server, partner="openai", overrides=[*GAME, f"partner.openai.base_url={partner.url}"])
    assert [(episode.ok, episode.traces[0].info["stop_reason"]) for episode in episodes] == [(True, "agreed")] * 2
    check_sides(server, partner)


async def test_the_partner_may_be_a_second_agent_that_is_not_trained() -> None:
    async with reciting([ASK, PROPOSE]) as server, OpenAIServer(model="shy") as partner:
        at = {"type": "eval", "base_url": partner.url, "api_key_var": "NO_KEY"}
        episodes = await run(server, opposite={"model": "shy", "client": at})
    for episode in episodes:
        player, opposite = (next(t for t in episode.traces if t.agent.name == name) for name in ("player", "opposite"))
        assert episode.ok and player.info["stop_reason"] == "agreed"
        assert player.agent.trainable and player.reward > 0 and player.metrics["questions"] == 1
        assert not opposite.agent.trainable and opposite.rewards == {}
    check_sides(server, partner)


async def test_selfplay_is_two_trained_agents(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> str:
        if "[propose]\n" in body["messages"][-1]["content"]:
            return "[accept]"
        return PROPOSE if any(message["role"] == "assistant" for message in body["messages"]) else ASK

    log = tmp_path / "log.jsonl"
    async with OpenAIServer(answer=answer, model=MODEL) as server:
        (episode,) = await run(server, num_games=1, partner="self", log=log)
    player, opposite = sorted(episode.traces, key=lambda trace: trace.agent.name, reverse=True)
    seats = list(read_log(log))
    assert episode.ok and [dialogue.seat for dialogue in seats] == [0, 1]
    for trace, dialogue in zip((player, opposite), seats, strict=True):
        assert trace.agent.trainable and trace.info["dialogue"] == dialogue.id
        assert trace.reward == dialogue.reward > 0 and trace.info["stop_reason"] == "agreed"
        said = [turn.text for turn in dialogue.turns if turn.role == "policy"]
        assert [message.content for message in trace.assistant_messages] == said
        assert [message.content for message in trace.messages[:2]] == [m["content"] for m in dialogue.prompt]
    assert seats[0].prompt != seats[1].prompt


async def test_a_game_of_ones_own() -> None:
    async with reciting(["1", "2", "3", "4", "5"]) as server:
        (episode,) = await run(server, num_games=1, config=ROOT / "examples/secret_number.yaml", overrides=[])
    assert episode.ok and episode.traces[0].info["stop_reason"] in ("finished", "max_turns")


async def test_a_failed_partner_or_model_fails_the_episode() -> None:
    async with reciting([ASK, PROPOSE]) as server, OpenAIServer(refusal=Step("status", status=400)) as partner:
        at = [f"partner.openai.base_url={partner.url}", "partner.openai.max_retries=0"]
        (episode,) = await run(server, num_games=1, partner="openai", overrides=[*GAME, *at])
    assert not episode.ok and "outage" in episode.errors[-1].message and episode.traces[0].rewards == {}
    async with OpenAIServer(model="another") as server:
        (episode,) = await run(server, num_games=1)
    assert not episode.ok and episode.traces[0].rewards == {}
    assert episode.traces[0].info["stop_reason"] == "engine_failed", "not the policy's fault"


async def test_a_limit_of_verifiers_is_the_policys_own() -> None:
    async with reciting([ASK] * 9) as server:
        (episode,) = await run(server, num_games=1, player={"max_turns": 1})
    (trace,) = episode.traces
    assert episode.ok and trace.reward == 0.0 and trace.info["stop_reason"] == "dialogue_tokens"


async def test_an_environment_server_plays_it_as_trainers_have_it() -> None:
    from verifiers.v1.serve.client import EnvClient
    from verifiers.v1.serve.server import EnvServer

    taskset = {"id": "slim-rl-matching", "overrides": GAME, "num_games": 1}
    sent = vf.resolve_env_config({"taskset": taskset}).model_dump(mode="json")  # over the wire to a server's process
    env_server = EnvServer(vf.resolve_env_config(sent), address="tcp://127.0.0.1:0")
    serving = asyncio.create_task(env_server.run())
    client = EnvClient(env_server.address)
    (task,) = env_server.env.taskset
    async with reciting([ASK, PROPOSE, OTHER, ASK, ASK]) as server:
        at = vf.EvalClientConfig(base_url=server.url, api_key_var="NO_KEY")
        episode = await client.run(at, MODEL, vf.SamplingConfig(), task.data.model_dump())
    await client.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    (trace,) = episode.traces
    expected = await by_worker(
        env_server.env.taskset.games, GameRow.from_dict(task.data.row), [ASK, PROPOSE, OTHER, ASK]
    )
    assert episode.ok and trace.reward == expected.reward
    assert trace.info["stop_reason"] == expected.stop_reason
    assert trace.metrics["questions"] >= 1


async def test_vf_eval_runs_it(tmp_path: Path) -> None:
    async with reciting([ASK, PROPOSE]) as server:
        command = [str(Path(sys.executable).with_name("vf-eval")), "slim-rl-matching", "-n", "2", "-r", "2"]
        command += ["--model", MODEL, "--client.base-url", server.url, "--client.api-key-var", "NO_KEY"]
        command += ["--env.taskset.num-games", "2", "--env.taskset.overrides"]
        command += [json.dumps([*GAME, "partner.args.accept_fraction=0"])]
        command += ["--no-push", "--no-rich", "--output-dir", str(tmp_path), "--run.name", "eval"]
        process = await asyncio.create_subprocess_exec(
            *command, env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    episodes = [json.loads(text) for text in (tmp_path / "eval" / "traces.jsonl").read_text().splitlines()]
    assert len(episodes) == 4
    for episode in episodes:
        (trace,) = episode["traces"]
        assert trace["rewards"]["reward"]["score"] > 0 and trace["metrics"]["questions"] == 1.0
