"""The agent loops in verl's real worker, with a server of its protocol: masks, advantages, and what the gradient sees."""

from __future__ import annotations

import functools
import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl")
import torch
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_policy_loss_fn, kl_penalty
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import RLHFDataset

from slim_rl.backends.verl.agent_loop import process_of
from slim_rl.dialogue.log import read_log
from tests.backends.verl_loop_setup import PLANS, advantages_of, batch_of, logs, model, play, rows, runs, speak
from tests.backends.verl_setup import Server, checkpoint

__all__ = ["logs", "model", "rows", "runs"]  # fixtures


def test_a_played_game_is_one_output_of_verls(runs: Any, rows: Any, tokenizer: Any, logs: Any) -> None:
    config, verl = runs()
    server = Server(tokenizer, speak)
    outputs = play(verl, server, rows, n=1)
    for _, _, params in server.calls:
        assert params["stop_token_ids"] == [tokenizer.eos_token_id]
        assert 0 < params["max_tokens"] <= 128
    for (output,) in outputs.values():
        assert output.response_mask[-1] == 1  # where verl puts the reward
        assert 0 < output.reward_score <= 1  # type: ignore[operator]
        assert output.num_turns >= 4
        assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (3, 3)
    assert {dialogue.step for dialogue in logs(config)} == {
        4
    }  # verl's fifth step; the first is 0, as under every trainer


def test_a_prompt_that_verl_cannot_hold_is_told_of(runs: Any, rows: Any, tokenizer: Any, caplog: Any) -> None:
    _, verl = runs({"verl": {"prompt_tokens": 100}})
    outputs = play(verl, Server(tokenizer, speak), rows[:1], n=2)
    assert [output for several in outputs.values() for output in several] == []
    assert len(re.findall(r"its prompt has \d{3} tokens, and verl\.prompt_tokens is 100; raise it", caplog.text)) == 2


def test_dialogue_played_again_counts_its_later_line(
    runs: Any, rows: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, verl = runs({"seed": 7})
    # in a new container the numbers of processes begin anew
    starts = [(0, 900, lambda text: PLANS[0]), (60, 17, speak)]
    for seconds, pid, player in starts:
        monkeypatch.setattr(time, "gmtime", functools.partial(time.gmtime, 1_790_000_000 + seconds))
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        process_of.cache_clear()
        play(verl, Server(tokenizer, player), rows[:1], n=1)
        monkeypatch.undo()
    process_of.cache_clear()
    (dialogue,) = read_log(config.run_dir / "logs")
    assert dialogue.turns[0].text == "[message] What is Ava Li on BLEU?"


def test_the_gradient_at_the_partners_tokens_is_exactly_zero(runs: Any, rows: Any, tokenizer: Any) -> None:
    _, verl = runs()

    def differently(text: str) -> str:  # so that a group has a spread of rewards
        differently.calls += 1  # type: ignore[attr-defined]
        turn = text.count("<|im_start|>assistant")
        return (
            "[message] Hello there." if turn == 1 and differently.calls % 3 else PLANS[(turn + differently.calls) % 2]
        )  # type: ignore[attr-defined]

    differently.calls = 0  # type: ignore[attr-defined]
    data, keys = batch_of(play(verl, Server(tokenizer, differently), rows))
    data = compute_advantage_for_multi_trajectories(data, keys, "grpo", config=verl.algorithm)
    mask = data.batch["response_mask"]
    old = data.batch["rollout_log_probs"]
    advantages = data.batch["advantages"]
    assert (advantages[mask == 1] != 0).any()
    assert (advantages[mask == 0] == 0).all()

    # The parts of verl's actor loss, as its worker adds them up.
    new = (old + 0.1 * torch.randn_like(old)).requires_grad_()
    actor = omega_conf_to_dataclass(verl.actor_rollout_ref.actor)
    loss, _ = get_policy_loss_fn("vanilla")(old, new, advantages, mask, "token-mean", config=actor)
    divergence = kl_penalty(new, old, "low_var_kl")
    (loss + 0.1 * (divergence * mask).sum() / mask.sum()).backward()
    assert (new.grad[mask == 0] == 0).all()
    assert (new.grad[mask == 1] != 0).any()


def test_self_play_seats_have_own_views_and_equal_advantage(runs: Any, rows: Any, tokenizer: Any) -> None:
    _, verl = runs({"partner": {"kind": "self"}})
    calls = iter(range(10**6))

    def differently(text: str) -> str:
        turn = text.count("<|im_start|>assistant")
        if text.rstrip().endswith("or [reject].<|im_end|>\n<|im_start|>assistant"):
            return "[accept]"
        return "[message] Hello." if turn == 1 else PLANS[next(calls) % 2]

    outputs = play(verl, Server(tokenizer, differently), rows)
    for first, second in outputs.values():
        assert first.reward_score == second.reward_score
        said = [
            tokenizer.decode([t for t, m in zip(o.response_ids, o.response_mask, strict=True) if m])
            for o in (first, second)
        ]
        heard = [
            tokenizer.decode([t for t, m in zip(o.response_ids, o.response_mask, strict=True) if not m])
            for o in (first, second)
        ]
        assert "[propose]" in said[0] and "[accept]" in said[1]
        assert "[propose]" in heard[1] and "[accept]" not in heard[0]
        prompts = [tokenizer.decode(o.prompt_ids) for o in (first, second)]
        assert "You speak first" in prompts[0] and "Your partner speaks first" in prompts[1]

    data, keys = batch_of(outputs)
    data = compute_advantage_for_multi_trajectories(data, keys, "grpo", config=verl.algorithm)
    seen = advantages_of(data)
    # A seat's baseline is its own seat's group: verl's GRPO on one seat's rows alone gives the very same.
    for seat in (0, 1):
        alone = data.select_idxs([i for i, key in enumerate(keys) if key.endswith(f"_{seat}")])
        expected = advantages_of(compute_advantage(alone, "grpo", config=verl.algorithm))
        assert torch.equal(seen[[i for i, key in enumerate(keys) if key.endswith(f"_{seat}")]], expected)
    assert len(set(seen.tolist())) > 1


def test_a_long_dialogue_stays_within_verls_batch(runs: Any, rows: Any, tokenizer: Any) -> None:
    _, verl = runs({}, "data.max_response_length=60")
    outputs = play(verl, Server(tokenizer, speak), rows[:1], n=2)
    assert all(len(output.response_ids) <= 60 for (output,) in outputs.values())
    assert {output.reward_score for (output,) in outputs.values()} == {0.0}


def test_a_share_of_nothing_enters_no_average_of_verls(runs: Any, rows: list[dict[str, Any]], tokenizer: Any) -> None:
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    _, verl = runs()
    silent = play(verl, Server(tokenizer, lambda text: PLANS[0]), rows[:1], n=1)["game0_0"]
    asking = play(verl, Server(tokenizer, speak), rows[:1], n=1)["game0_0"]
    found = [output.extra_fields["reward_extra_info"] for (output,) in (silent, asking)]
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
    from verl.trainer.ppo.reward import load_reward_manager

    _config, verl = runs(
        {"environment": "slim_rl.games.matching.planning.PlanningEnv", "verl": {"mode": "single_turn"}}
    )
    manager = load_reward_manager(verl, tokenizer)
    dataset = RLHFDataset(verl.data.train_files, tokenizer, verl.data)
    row = dataset[0]
    state = json.loads(row["extra_info"]["game_state"])

    async def score(answer: str) -> dict[str, Any]:
        ids = torch.tensor([*tokenizer.encode(answer), tokenizer.eos_token_id])
        data = DataProto.from_dict(
            tensors={"responses": ids[None], "attention_mask": torch.ones(1, 7 + len(ids))},
            non_tensors={
                key: np.array([row[key]], dtype=object) for key in ("data_source", "extra_info", "reward_model")
            },
        )
        return await manager.run_single(data)

    good = await score(PLANS[0])
    total = sum(state["table"][reviewer][reviewer] for reviewer in range(3))
    assert good["reward_score"] == pytest.approx(total / state["best_assignment_reward"])
    for nonsense in (
        "",
        "I would give BLEU to Ava.",
        "[propose]\nBLEU: Ava Li",
        "[propose]\nBLEU: Nobody\nElectra: Ava Li",
    ):
        assert await score(nonsense) == {
            "reward_score": 0.0,
            "reward_extra_info": {
                "unparsable": 1.0,
                "unparsable_share": pytest.approx(manager.unparsable / manager.scored),
            },
        }
    assert (manager.scored, manager.unparsable) == (5, 4)


def test_a_reference_of_its_own_takes_the_place_of_the_policys(model: Path, tmp_path: Path, tokenizer: Any) -> None:
    from verl.workers.config import HFModelConfig
    from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorkerConfig

    from slim_rl.backends.verl.plugin import ReferenceWorker, with_reference

    assert ActorRolloutRefWorker.ref_worker_cls is ReferenceWorker
    other = checkpoint(tmp_path / "reference", tokenizer)
    policy = SimpleNamespace(model=HFModelConfig(path=str(model)))
    config = TrainingWorkerConfig(model_type="language_model", model_config=policy.model, engine_config=None)  # type: ignore[arg-type]
    changed = with_reference(config, str(other))
    assert changed.model_config.local_path == str(other)
    assert changed.model_config.hf_config._name_or_path == str(other)
    assert config.model_config.local_path == str(model)
