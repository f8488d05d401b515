"""Dialogues that fail in verl's real worker: no baseline knows of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl")
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.dataset.rl_dataset import collate_fn
from verl.workers.rollout.replica import TokenOutput

from slim_rl.backends.verl.plugin import grpo_played
from tests.backends.verl_loop_setup import advantages_of, batch_of, logs, model, play, rows, runs, speak
from tests.backends.verl_setup import Server

__all__ = ["logs", "model", "rows", "runs"]  # fixtures


def failing(sessions: set[int]) -> Callable[[str], str | Exception]:
    """The engine gives up on the n-th dialogues that open."""
    opened = iter(range(10**6))

    def one(text: str) -> str | Exception:
        if text.count("<|im_start|>assistant") == 1 and next(opened) in sessions:
            return RuntimeError("the engine is gone")
        return speak(text)

    return one


def test_a_failed_dialogue_leaves_no_trace_in_its_group(runs: Any, rows: Any, tokenizer: Any, logs: Any) -> None:
    config, verl = runs({"seed": 1})
    outputs = play(verl, Server(tokenizer, failing({1})), rows[:1])
    assert [len(several) for several in outputs.values()] == [1, 0, 1, 1]
    failed = [dialogue for dialogue in logs(config) if dialogue.failed]
    assert len(failed) == 1
    assert "the engine is gone" in failed[0].failure


@pytest.mark.parametrize("word", ["aborted", "abort"], ids=["vllm", "sglang"])
def test_a_turn_that_the_engine_aborted_is_not_played(
    runs: Any, rows: Any, tokenizer: Any, logs: Any, word: str
) -> None:
    class Aborting(Server):
        async def generate(self, *args: Any, **kwargs: Any) -> Any:
            output = await super().generate(*args, **kwargs)
            if len(self.calls) == 1:
                return output
            return TokenOutput(token_ids=output.token_ids[:3], log_probs=output.log_probs[:3], stop_reason=word)

    config, verl = runs({"name": word})
    assert play(verl, Aborting(tokenizer, speak), rows[:1], n=1) == {"game0_0": []}
    [dialogue] = logs(config)
    assert dialogue.stop_reason == "aborted" and [turn.role for turn in dialogue.turns] == ["policy", "partner"]


def test_a_lone_survivor_has_nothing_to_be_compared_with(runs: Any, rows: Any, tokenizer: Any) -> None:
    _, verl = runs()
    outputs = play(verl, Server(tokenizer, failing({0, 1, 3})), rows[:1])
    assert not any(outputs.values())
    # verl's own GRPO would have given it its bare reward for an advantage
    kept = play(runs({}, "algorithm.adv_estimator=gae")[1], Server(tokenizer, failing({0, 1, 3})), rows[:1])
    assert sum(map(len, kept.values())) == 1  # a critic needs no siblings
    data, keys = batch_of(kept)
    data = compute_advantage_for_multi_trajectories(data, keys, "grpo", config=verl.algorithm)
    assert advantages_of(data).item() == pytest.approx(data.batch["rm_scores"].sum().item(), abs=1e-4)


def test_under_the_older_trainer_a_failed_dialogue_shifts_no_baseline(runs: Any, rows: Any, tokenizer: Any) -> None:
    _, verl = runs({}, "trainer.use_v1=false")
    dicts = [{key: value for key, value in row.items() if key != "uid"} for row in rows]
    data = DataProto.from_single_dict(collate_fn(dicts))
    data.non_tensor_batch["uid"] = np.array(["a", "b"], dtype=object)
    data = data.repeat(4, interleave=True)
    data.non_tensor_batch["priority"] = np.arange(8)

    def batch(server: Server) -> Any:
        worker = AgentLoopWorker(verl, server)  # type: ignore[arg-type]
        out = asyncio.run(worker.generate_sequences(data))
        out.batch["token_level_rewards"] = out.batch["rm_scores"]
        out.non_tensor_batch["uid"] = data.non_tensor_batch["uid"]
        return out

    out = batch(Server(tokenizer, failing({0, 5, 6, 7})))
    assert out.batch["response_mask"].sum(-1).eq(0).tolist() == [True, *[False] * 4, True, True, True]
    rewards = out.batch["token_level_rewards"]
    spread = rewards + torch.arange(8)[:, None] * 0.1 * (rewards != 0)  # rewards that differ within a group
    out.batch["token_level_rewards"] = spread
    out = compute_advantage(out, "grpo_played", config=verl.algorithm)
    advantages = out.batch["advantages"].abs().sum(-1)
    assert advantages[[0, 4, 5, 6, 7]].eq(0).all()  # failed, or alone
    played = out.select_idxs([1, 2, 3])
    expected = compute_advantage(played, "grpo", config=verl.algorithm).batch["advantages"]
    assert torch.equal(out.batch["advantages"][1:4], expected)


def test_grpo_played_is_verls_grpo_where_nothing_failed() -> None:
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    rewards = torch.rand(6, 5) * torch.tensor([0.0, 0, 0, 0, 1])
    mask = torch.ones(6, 5)
    index = np.array(["a", "a", "a", "b", "b", "b"], dtype=object)
    for scale in (True, False):
        ours, _ = grpo_played(rewards, mask, index, config={"norm_adv_by_std_in_grpo": scale})
        theirs, _ = compute_grpo_outcome_advantage(rewards.clone(), mask, index, norm_adv_by_std_in_grpo=scale)
        assert torch.equal(ours, theirs)
