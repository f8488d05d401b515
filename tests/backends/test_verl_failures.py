"""Dialogues that fail in verl's real worker: no baseline knows of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("verl")
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.workers.rollout.replica import TokenOutput

from slim_rl.backends.verl.plugin import without_lone_dialogues
from tests.backends.verl_loop_setup import advantages_of, batch_of, logs, model, play, rows, runs, speak
from tests.backends.verl_setup import Server

__all__ = ["logs", "model", "rows", "runs"]  # fixtures


def failing(sessions: set[int]) -> Callable[[str], str | Exception]:
    """The engine gives up on the n-th dialogues that reach their second turn."""
    opened = iter(range(10**6))

    def one(text: str) -> str | Exception:
        if text.count("<|im_start|>assistant") == 2 and next(opened) in sessions:
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
    assert sum(map(len, outputs.values())) == 1

    def advantage(compute: Any, estimator: str = "grpo") -> tuple[float, float]:
        data, keys = batch_of(outputs)
        data = compute(data, keys, estimator, config=verl.algorithm)
        return advantages_of(data).item(), data.batch["rm_scores"].sum().item()

    own, reward = advantage(compute_advantage_for_multi_trajectories)
    assert own == pytest.approx(reward, abs=1e-4)  # verl's own GRPO gives it its bare reward for an advantage
    assert advantage(without_lone_dialogues(compute_advantage_for_multi_trajectories))[0] == 0
