"""The agent loops in verl's real worker, with a server of its protocol: what verl is given, and its advantages."""

import functools
import itertools
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl")
import torch
from verl.protocol import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.reward import load_reward_manager
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from slim_rl.backends.verl.agent_loop import process_of
from slim_rl.backends.verl.plugin import without_lone_dialogues
from slim_rl.backends.verl.settings import STOP_MARK
from slim_rl.backends.verl.trainer import make_trainer
from slim_rl.config import parse_config
from tests.backends.verl_setup import ASKED_TO_ACCEPT, PLANS, Server, advantages_of, batch_of, logged, play, speak
from tests.fakes.models import checkpoint


@pytest.fixture
def played(runs: Any, rows: Any, tokenizer: Any) -> Callable[..., tuple[Any, Any, dict[str, list[Any]]]]:
    """played(policy, settings, games, n, server): slim_rl's config and verl's, and n dialogues of each game."""

    def of(player: Any, settings: Any = None, games: int = 1, n: int = 1, server: type[Server] = Server) -> Any:
        config, verl = runs(settings)
        return config, verl, play(verl, server(tokenizer, player), rows[:games], n)

    return of


def failing(sessions: set[int]) -> Callable[[str], str | Exception]:
    """The engine gives up on the n-th dialogues that reach their second turn."""
    opened = itertools.count()

    def one(text: str) -> str | Exception:
        gone = text.count("<|im_start|>assistant") == 2 and next(opened) in sessions
        return RuntimeError("the engine is gone") if gone else speak(text)

    return one


def test_a_played_game_is_one_output_of_verls(runs: Any, rows: Any, tokenizer: Any) -> None:
    server = Server(tokenizer, speak)
    outputs = play(runs()[1], server, rows, n=1)
    for _, params in server.calls:
        assert params["stop_token_ids"] == [tokenizer.eos_token_id] and 0 < params["max_tokens"] <= 128
    for (output,) in outputs.values():
        assert output.response_mask[-1] == 1  # where verl puts the reward
        assert 0 < output.reward_score <= 1 and output.num_turns >= 4  # type: ignore[operator]
        assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (3, 3)


def test_a_long_prompt_or_dialogue_stays_within_verls_batch(
    runs: Any, rows: Any, played: Any, tokenizer: Any, caplog: Any
) -> None:
    _, _, outputs = played(speak, {"verl": {"prompt_tokens": 100}}, n=2)
    assert list(outputs.values()) == [[], []]
    assert len(re.findall(r"its prompt has \d{3} tokens, and verl\.prompt_tokens is 100; raise it", caplog.text)) == 2
    outputs = play(runs({}, "data.max_response_length=60")[1], Server(tokenizer, speak), rows[:1], n=2)
    assert all(len(output.response_ids) <= 60 and output.reward_score == 0.0 for (output,) in outputs.values())


def test_dialogue_played_again_counts_its_later_line(played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # in a new container the numbers of processes begin again
    for seconds, pid, player in [(0, 900, lambda text: PLANS[0]), (60, 17, speak)]:
        with monkeypatch.context() as patch:
            patch.setattr(time, "gmtime", functools.partial(time.gmtime, 1_790_000_000 + seconds))
            patch.setattr(os, "getpid", lambda pid=pid: pid)
            process_of.cache_clear()
            config, _, _ = played(player, {"seed": 7})
    process_of.cache_clear()
    (dialogue,) = logged(config)
    assert dialogue.turns[0].text == "[message] What is Ava Li on BLEU?"


def test_a_seats_baseline_is_its_own_seats_group(played: Any) -> None:
    """verl's GRPO on one seat's rows alone gives the very same."""
    calls = itertools.count()

    def several_plans(text: str) -> str:
        if text.rstrip().endswith(ASKED_TO_ACCEPT):
            return "[accept]"
        number, first = next(calls), text.count("<|im_start|>assistant") == 1
        return "[message] Hello." if first else PLANS[number % 2]

    _, verl, outputs = played(several_plans, {"partner": {"kind": "self"}}, games=2, n=4)
    assert all(first.reward_score == second.reward_score for first, second in outputs.values())
    data, keys = batch_of(outputs)
    data = compute_advantage_for_multi_trajectories(data, keys, "grpo", config=verl.algorithm)
    seen = advantages_of(data)
    for seat in (0, 1):
        own = [i for i, key in enumerate(keys) if key.endswith(f"_{seat}")]
        alone = compute_advantage(data.select_idxs(own), "grpo", config=verl.algorithm)
        assert torch.equal(seen[own], advantages_of(alone))
    assert len(set(seen.tolist())) > 1


def test_a_failed_dialogue_leaves_no_trace_in_its_group(played: Any) -> None:
    config, _, outputs = played(failing({1}), {"seed": 1}, n=4)
    assert [len(several) for several in outputs.values()] == [1, 0, 1, 1]
    (failed,) = [dialogue for dialogue in logged(config) if dialogue.failed]
    assert "the engine is gone" in failed.failure and not (config.run_dir / STOP_MARK).exists()


SPENT = {"kind": "tests.backends.played.Forger", "args": {"fails": 1, "why": "No money left.", "reason": "budget"}}


def test_partner_that_takes_no_more_calls_leaves_the_stop_mark(played: Any) -> None:
    config, _, outputs = played(speak, {"partner": SPENT})
    assert outputs == {"game0_0": []}
    assert (config.run_dir / STOP_MARK).read_text() == "No money left."


@pytest.mark.parametrize("word", ["aborted", "abort"], ids=["vllm", "sglang"])
def test_a_turn_that_the_engine_aborted_is_not_played(played: Any, word: str) -> None:
    class Aborting(Server):
        async def generate(self, *args: Any, **kwargs: Any) -> Any:
            output = await super().generate(*args, **kwargs)
            cut = TokenOutput(token_ids=output.token_ids[:3], log_probs=output.log_probs[:3], stop_reason=word)
            return output if len(self.calls) == 1 else cut

    config, _, outputs = played(speak, {"name": word}, server=Aborting)
    [dialogue] = logged(config)
    assert outputs == {"game0_0": []} and dialogue.stop_reason == "aborted"
    assert [turn.role for turn in dialogue.turns] == ["policy", "partner"]


def test_a_lone_survivor_has_nothing_to_be_compared_with(played: Any) -> None:
    _, verl, outputs = played(failing({0, 1, 3}), n=4)
    assert sum(map(len, outputs.values())) == 1

    def advantage(compute: Any) -> tuple[float, float]:
        data = compute(*batch_of(outputs), "grpo", config=verl.algorithm)
        return advantages_of(data).item(), data.batch["rm_scores"].sum().item()

    own, reward = advantage(compute_advantage_for_multi_trajectories)
    assert own == pytest.approx(reward, abs=1e-4)  # verl's own GRPO gives it its bare reward for an advantage
    assert advantage(without_lone_dialogues(compute_advantage_for_multi_trajectories))[0] == 0


def test_a_share_of_nothing_enters_no_average_of_verls(played: Any) -> None:
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    dialogues = [played(player)[2]["game0_0"] for player in (lambda _: PLANS[0], speak)]
    found = [output.extra_fields["reward_extra_info"] for (output,) in dialogues]
    assert found[0]["answered"] is None and found[1]["answered"] in (0.0, 1.0)
    merged = {name: [each[name] for each in found] for name in found[0]}
    means = process_validation_metrics(["matching"] * 2, ["u", "u"], merged)["matching"]
    assert means["answered"]["mean@1"] == found[1]["answered"]
    assert means["questions"]["mean@2"] == 0.5 and "reward" not in means


def test_a_parquet_file_of_generate_is_read_too(runs: Any, tokenizer: Any, tmp_path: Path) -> None:
    from slim_rl.commands.generate import command as generate

    generate(num_games=2, output=tmp_path / "games.parquet", n=3)
    _, verl = runs()
    dataset = RLHFDataset(str(tmp_path / "games.parquet"), tokenizer, verl.data)
    outputs = play(verl, Server(tokenizer, speak), [dataset[0] | {"uid": "x"}], n=2)
    assert all(output.reward_score > 0 for (output,) in outputs.values())  # type: ignore[operator]


async def test_reward_manager_scores_and_counts_unreadable(runs: Any, tokenizer: Any) -> None:
    _, verl = runs({"environment": "slim_rl.games.matching.planning.PlanningEnv", "verl": {"mode": "single_turn"}})
    manager = load_reward_manager(verl, tokenizer)
    row = RLHFDataset(verl.data.train_files, tokenizer, verl.data)[0]
    state = json.loads(row["extra_info"]["game_state"])
    given = {key: np.array([row[key]], dtype=object) for key in ("data_source", "extra_info", "reward_model")}

    async def score(answer: str) -> dict[str, Any]:
        ids = torch.tensor([*tokenizer.encode(answer), tokenizer.eos_token_id])
        tensors = {"responses": ids[None], "attention_mask": torch.ones(1, 7 + len(ids))}
        return await manager.run_single(DataProto.from_dict(tensors=tensors, non_tensors=given))

    total = sum(state["table"][reviewer][reviewer] for reviewer in range(3))
    assert (await score(PLANS[0]))["reward_score"] == pytest.approx(total / state["best_assignment_reward"])
    incomplete, unknown = "[propose]\nBLEU: Ava Li", "[propose]\nBLEU: Nobody\nElectra: Ava Li"
    for nonsense in ("", "I would give BLEU to Ava.", incomplete, unknown):
        assert await score(nonsense) == {"reward_score": 0.0, "reward_extra_info": {"unparsable": 1.0}}


def test_a_reference_of_its_own_takes_the_place_of_the_policys(model: Path, tmp_path: Path, tokenizer: Any) -> None:
    from verl.workers.config import HFModelConfig
    from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorkerConfig

    from slim_rl.backends.verl.plugin import ReferenceWorker, with_reference

    assert ActorRolloutRefWorker.ref_worker_cls is ReferenceWorker
    other = str(checkpoint(tmp_path / "reference", tokenizer))
    policy = SimpleNamespace(model=HFModelConfig(path=str(model)))
    config = TrainingWorkerConfig(model_type="language_model", model_config=policy.model, engine_config=None)  # type: ignore[arg-type]
    changed = with_reference(config, other)
    assert changed.model_config.local_path == changed.model_config.hf_config._name_or_path == other
    assert config.model_config.local_path == str(model)


@pytest.mark.verl
def test_trainer_of_a_game_is_verls_current_one(tmp_path: Path, model: Path) -> None:
    own_game = {"environment": "examples.secret_number.SecretNumber", "verl": {"gpus": 2, "prompt_tokens": 256}}
    own_game |= {"train": {"games_per_step": 2, "group_size": 4, "kl_coef": 0.01}, "policy": {"model": str(model)}}
    files = {"output_dir": str(tmp_path), "data": {"train": str(tmp_path / "games.jsonl"), "num_train": 6}}
    trainer = make_trainer(parse_config(own_game | files))
    assert isinstance(trainer, PPOTrainer)
    assert trainer.use_reference_policy and not trainer.use_critic, "a KL is asked for, and GRPO needs no critic"
    trainer._init_tokenizer()
    data = RLHFDataset(trainer.config.data.train_files, trainer.tokenizer, trainer.config.data)
    assert len(data) == 6 and "Find the number from 1 to 8" in data[0]["raw_prompt"][0]["content"]
