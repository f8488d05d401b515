"""The OpenEnv server, over HTTP and WebSocket on loopback, and through TRL's environment_factory."""

import asyncio
import importlib.util
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.session import Games
from tests.adapters.played import ASK, FAILING, OTHER, PROPOSE, SMALL, WORDS, WRONG, by_worker, line
from tests.paths import ROOT

pytest.importorskip("openenv.core", reason="pip install -e environments/slim_rl_openenv")

Serve = Callable[[Games], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """serve(games): the URL of a server of these games."""
    import uvicorn
    from slim_rl_openenv import make_app

    running = []

    def start(games: Games) -> str:
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(games), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        running.append((server, thread))
        deadline = time.monotonic() + 30
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        return f"http://127.0.0.1:{bound.getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(10)


def only(log: Path) -> Dialogue:
    (dialogue,) = read_log(log)
    return dialogue


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("words", WORDS)
def test_a_game_over_the_websocket_is_the_workers(words: list[str], seat: int, serve: Serve, tmp_path: Path) -> None:
    from slim_rl_openenv import GameAction, GameClient

    games = Games(SMALL | {"data": {"seat": seat}}, log=tmp_path / "log.jsonl", scope="openenv")
    with GameClient(serve(games)).sync() as game:
        opening = seen = game.reset(seed=3)
        assert seen.reward == 0.0 and not seen.done
        for word in words:
            seen = game.step(GameAction(text=word))
            if seen.done:
                break
        steps = game.state().step_count
        again = game.reset(seed=3)
        other = game.reset(seed=4)
    (row,) = games.deal("train", 1, 3)
    expected = asyncio.run(by_worker(games, row, words, 0))
    assert line(only(tmp_path / "log.jsonl")) == line(expected)
    assert seen.done and seen.reward == expected.reward
    assert seen.observation.stop_reason == expected.stop_reason
    assert seen.observation.metrics["questions"] == words[:steps].count(ASK)
    assert opening.observation.messages == expected.prompt
    dealt = [shown.observation.messages[-1]["content"].split("\n\n")[0] for shown in (opening, again, other)]
    assert dealt[0] == dealt[1] != dealt[2]


def test_a_row_of_a_games_file(serve: Serve) -> None:
    from slim_rl_openenv import GameClient

    games = Games(SMALL)
    (row,) = games.deal("eval", 1)
    with GameClient(serve(games)).sync() as game:
        assert game.reset(row=row.to_dict()).observation.messages == row.prompt
        assert game.state().episode_id == row.name


def test_games_side_by_side(serve: Serve) -> None:
    from slim_rl_openenv import GameAction, GameClient

    url = serve(Games(SMALL))

    async def play(seed: int) -> float | None:
        async with GameClient(url) as game:
            seen = await game.reset(seed=seed)
            for word in [ASK, PROPOSE, OTHER, WRONG, WRONG]:
                if not seen.done:
                    seen = await game.step(GameAction(text=word))
            return seen.reward

    async def play_all() -> list[float | None]:
        return await asyncio.gather(*(play(seed % 4) for seed in range(16)))

    rewards = asyncio.run(play_all())
    assert rewards[:4] * 4 == rewards and all(reward is not None for reward in rewards)


def test_a_failed_partner_leaves_no_reward(serve: Serve) -> None:
    from slim_rl_openenv import GameAction, GameClient

    with GameClient(serve(Games(FAILING))).sync() as game:
        game.reset(seed=1)
        seen = game.step(GameAction(text=ASK))
    assert seen.done and seen.reward is None and seen.observation.failure == "no answer"


def test_what_openenv_validates_of_a_running_server(serve: Serve) -> None:
    from openenv.cli._validation import validate_running_environment

    report = validate_running_environment(serve(Games(SMALL)))
    assert report["passed"], report


def test_plain_http_resets_but_keeps_no_game(serve: Serve) -> None:
    url = serve(Games(SMALL))
    opening = httpx.post(f"{url}/reset", json={"seed": 3}).json()
    assert [message["role"] for message in opening["observation"]["messages"]] == ["system", "user"]
    seen = httpx.post(f"{url}/step", json={"action": {"text": ASK}}).json()
    assert seen["done"] and seen["reward"] is None and "reset" in seen["observation"]["text"]


PACKAGE = ROOT / "environments/slim_rl_openenv"


def test_openenv_validate_passes_on_the_folder() -> None:
    from openenv.cli._validation import validate_multi_mode_deployment
    from openenv.validation import Level, run_validation

    _, issues = validate_multi_mode_deployment(PACKAGE)
    assert [issue for issue in issues if "uv.lock" not in issue] == []  # a lock would name one machine's index
    assert run_validation(PACKAGE, max_level=Level.STATIC).verdict == "pass"
    command = [str(Path(sys.executable).with_name("openenv")), "validate", str(PACKAGE), "--json"]
    whole = subprocess.check_output(command, text=True)
    assert {result["status"] for result in json.loads(whole)["results"]} == {"pass", "skip"}


@pytest.fixture
def oracle() -> ModuleType:
    """The script that openenv.yaml names as its oracle."""
    spec = importlib.util.spec_from_file_location("oracle", PACKAGE / "validation/oracle.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_references_and_cheats_earn_what_the_folder_promises(oracle: ModuleType, serve: Serve) -> None:
    from slim_rl_openenv import GameClient

    games = Games(PACKAGE / "server/game.yaml")
    players = oracle.players(games)
    canaries = {canary["name"]: canary for canary in json.loads(oracle.CANARIES.read_text())}
    found = {}
    with GameClient(serve(games)).sync() as client:
        for name, player in players.items():
            said = [oracle.words(games, seed, player) for seed in range(2)]
            found[name] = [oracle.earned(client, seed, each) for seed, each in enumerate(said)]
            if canary := canaries.pop(name, None):
                assert [action["text"] for action in canary["actions"]] == said[0]
                assert canary["reward"] == found[name][0]
    assert not canaries and len(found) == 9
    assert list(oracle.broken(found)) == []
    assert "oracle_tolerance" in next(oracle.broken({"ideal": [1.0, 0.9]}))
    assert "solo earned 0.950" in next(oracle.broken({"ideal": [1.0], "solo": [1.0, 0.9]}))


def test_openenvs_runtime_checks_pass_on_the_oracles_game(oracle: ModuleType, serve: Serve) -> None:
    """What `openenv validate` measures once it has built a container, here on a server beside it."""
    from openenv.validation import Subject, load_policy
    from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
    from openenv.validation.runner import default_grader_registry
    from openenv.validation.runtime.collector import collect_runtime_evidence
    from openenv.validation.runtime.contracts import RuntimePlan

    games = Games(PACKAGE / "server/game.yaml")
    actions = [{"text": text} for text in oracle.words(games, 0, oracle.players(games)["ideal"])]
    plan = RuntimePlan(plan_schema_version="1", reset={"episode_id": "one", "seed": 0}, actions=actions)
    evidence = collect_runtime_evidence(serve(games), plan, episode_timeout_s=60)
    assert evidence.failure_reason is None and json.loads(evidence.exchanges[-2].response_json)["data"]["done"]
    manifest = OpenEnvYamlParser().parse(PACKAGE)
    subject = Subject(PACKAGE, manifest, None, None, PACKAGE / "outputs", runtime_evidence=evidence)
    registry = default_grader_registry(load_policy("v2"))
    for name in ("reward_well_formed", "observation_schema", "state_contract"):
        result = registry.get(f"runtime.{name}").run(subject)
        assert result.status == "pass", result


def test_for_trl_the_tool_says_and_the_environment_rewards(serve: Serve, tmp_path: Path) -> None:
    from slim_rl_openenv import TRLGame

    games = Games(SMALL | {"data": {"seat": 1}}, log=tmp_path / "log.jsonl")
    environment = TRLGame(serve(games))
    (row,) = games.deal("train", 1)
    opening = environment.reset(prompt=row.prompt, game=json.dumps(row.to_dict()))
    assert opening is not None and opening.strip().startswith("[message]")  # the partner spoke first
    assert "Ava Li" in environment.say(ASK)
    assert environment.get_reward() == 0.0  # it stopped before the game did
    assert only(tmp_path / "log.jsonl").stop_reason is StopReason.DIALOGUE_TOKENS
    assert "Your scores" in (environment.reset(seed=2) or "")


def test_trl_trains_on_it(serve: Serve, tmp_path: Path) -> None:
    """Two steps of TRL's own GRPOTrainer with data/warmstart, made to call the tool: in each group one plan, and the other one."""
    pytest.importorskip("trl", reason="TRL is not installed: pip install slim-rl[local]")
    pytest.importorskip("jmespath", reason="TRL's tools need jmespath")
    import torch
    from datasets import Dataset
    from slim_rl_openenv import TRLGame
    from transformers import AutoTokenizer, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_chat_template

    games = Games(SMALL, overrides=["partner.args.accept_fraction=0"], log=tmp_path / "log.jsonl")
    rows = games.deal("train", 2)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "data/warmstart", padding_side="left")
    tokenizer.chat_template = qwen3_chat_template  # which knows tools

    def turns(*texts: str | None) -> torch.Tensor:
        """A batch of turns: a call that says the text, or none."""
        calls = [text and json.dumps({"name": "say", "arguments": {"text": text}}) for text in texts]
        said = [f"<tool_call>\n{call}\n</tool_call><|im_end|>" if call else "Done.<|im_end|>" for call in calls]
        encoded = tokenizer(said, add_special_tokens=False, padding=True, padding_side="right", return_tensors="pt")
        return encoded.input_ids

    class Scripted(Qwen3ForCausalLM):
        asked = 0

        def generate(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
            said = [(ASK, ASK), (PROPOSE, OTHER), (None, None)][Scripted.asked % 3]
            Scripted.asked += 1
            return torch.cat([input_ids, turns(*said * (len(input_ids) // 2))], dim=1)

    config = GRPOConfig(
        output_dir=str(tmp_path / "out"), use_cpu=True, bf16=False, report_to="none", gradient_checkpointing=False, max_steps=2,
        logging_steps=1, per_device_train_batch_size=4, num_generations=2, max_completion_length=2000, save_strategy="no",
    )  # fmt: skip
    dataset = Dataset.from_list([{"prompt": row.prompt, "game": json.dumps(row.to_dict())} for row in rows])
    # TRL's tools and their answers take more than the 1,024 places that the model was taught
    model = Scripted.from_pretrained(ROOT / "data/warmstart", dtype=torch.float32, max_position_embeddings=8192)
    factory = partial(TRLGame, serve(games))
    trainer = GRPOTrainer(
        model=model, args=config, train_dataset=dataset, processing_class=tokenizer, environment_factory=factory
    )
    trainer.train()
    dialogues = list(read_log(tmp_path / "log.jsonl"))
    assert len(dialogues) == 8 and {dialogue.game_id for dialogue in dialogues} == {row.game_id for row in rows}
    for dialogue in dialogues:
        said = [turn.text for turn in dialogue.turns if turn.role == "policy"]
        assert said in ([ASK, PROPOSE], [ASK, OTHER])
        assert dialogue.stop_reason is StopReason.AGREED
    steps = [line for line in trainer.state.log_history if "rewards/TRLGame/mean" in line]
    for number, logged in enumerate(steps):
        rewards = [dialogue.reward or 0.0 for dialogue in dialogues[4 * number : 4 * number + 4]]
        assert logged["rewards/TRLGame/mean"] == pytest.approx(sum(rewards) / 4)
        assert logged["grad_norm"] > 0
    assert len(steps) == 2
