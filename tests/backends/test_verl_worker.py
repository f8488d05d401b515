"""A step of verl's newer trainer up to the advantages, in its real processes: Ray, load balancer, agent loop worker, TransferQueue,
replay buffer. Only the engine is a stand-in.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl")
from verl.trainer.ppo.v1 import PPOTrainer

import slim_rl.backends.verl.plugin
import slim_rl.backends.verl.stop  # noqa: F401  (as verl's trainer imports both)
from slim_rl.config import Config
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.tracked import batch_metrics
from slim_rl.dialogue.training_reward import by_token, make_training_reward
from tests.backends.verl_setup import Server, checkpoint, make_run
from tests.paths import ROOT

pytestmark = pytest.mark.verl
PLANS = (
    "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel",
    "[propose]\nBLEU: Daniel Nguyen\nElectra: Ava Li\nGloVe: Sofia Patel",
)


class Engine(Server):
    """Numbers the dialogues of each game that open, plays plan 0 in even ones and plan 1 in odd ones, and fails in the third of all."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, self._say)
        self.opened: Counter[str] = Counter()  # by what the game deals its opener

    def _say(self, text: str) -> str | Exception:
        number = re.search(r"Dialogue (\d+)", text)
        if number is None:
            self.opened[text] += 1
            failed = self.opened.total() == 3
            return RuntimeError("the engine is gone") if failed else f"[message] Dialogue {self.opened[text]}."
        if text.rstrip().endswith("or [reject].<|im_end|>\n<|im_start|>assistant"):
            return "[accept]"
        if "You speak first" not in text:
            return "[message] Yes?"
        return PLANS[int(number[1]) % 2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import ray

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before]))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=8,
        include_dashboard=False,
        object_store_memory=200 * 2**20,
        log_to_driver=False,
        _system_config={"worker_niceness": 0},  # Ray's 15 starves on a machine that is busy otherwise
    )
    yield ray
    ray.shutdown()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.mark.timeout(400)
def test_a_step_of_self_play_reaches_the_advantages(cluster: Any, tokenizer: Any, tmp_path: Path) -> None:
    import torch
    import transfer_queue as tq
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.utils import tensordict_utils as tu
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    model = checkpoint(tmp_path / "model", tokenizer)
    config, verl = make_run(
        tmp_path,
        model,
        {"partner": {"kind": "self"}},
        "transfer_queue.enable=true",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    )
    OmegaConf.resolve(verl)
    dataset = RLHFDataset(verl.data.train_files, tokenizer, verl.data)
    rows = [dataset[0], dataset[1]]
    engine = cluster.remote(Engine).remote(tokenizer)
    balancer = cluster.remote(GlobalRequestLoadBalancer).remote({"engine": engine})

    tq.init(verl.transfer_queue)
    try:
        manager = AgentLoopManagerTQ.create(config=verl, llm_client=LLMServerClient(verl, balancer))
        prompts = collate_fn(rows) | {"uid": np.array(["first", "second"], dtype=object)}
        batch = tu.get_tensordict(prompts)
        tu.assign_non_tensor_data(batch, "global_steps", 1)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": 1}] * 2
        tq.kv_batch_put(keys=["first", "second"], partition_id="train", tags=tags)
        manager.generate_sequences(batch)
        sampled, _ = ReplayBuffer("sync", {}, 8, "drop", {}, poll_interval=0.2).sample(1, "train", 2)  # type: ignore[arg-type]

        played = sorted({(key.split("_")[0], int(key.split("_")[1])) for key in sampled.keys})
        assert len(played) == 7  # of 2 games × 4 sessions, one failed
        assert sorted(sampled.keys) == [f"{uid}_{session}_{seat}" for uid, session in played for seat in (0, 1)]
        assert {tag["min_global_steps"] for tag in sampled.tags} == {3}

        whole = upsample_batch_to_divisible_size(sampled, 16, tokenizer.eos_token_id)
        # What the actor would compute: the weights have not changed since.
        sampling = tq.kv_batch_get(keys=whole.keys, partition_id="train", select_fields=["rollout_log_probs"])
        old = TensorDict({"old_log_probs": sampling["rollout_log_probs"]}, batch_size=len(whole))
        tq.kv_batch_put(keys=whole.keys, partition_id="train", fields=old)
        PPOTrainer._compute_advantage(SimpleNamespace(config=verl), whole, {})  # type: ignore[arg-type]
        fields = ["advantages", "response_mask", "rm_scores"]
        data = tq.kv_batch_get(keys=whole.keys, partition_id="train", select_fields=fields)
        found = {
            key: (advantage[mask == 1], advantage[mask == 0], score.sum())
            for key, advantage, mask, score in zip(whole.keys, *(data[name].unbind() for name in fields), strict=True)
        }
        by_turn = pay_again(
            config, verl, whole, 1, tmp_path / "turn.yaml", reward="turn_credit", reward_args={"decay": 0.5}
        )
        shuffling = with_train(config, reward="shuffled", reward_args={"zeros": True, "price": 0.25})
        # A shuffle may happen to leave all as it was: the first that does not.
        step = next(step for step in range(1, 100) if moves(shuffling, by_turn[1], step))
        shuffled = pay_again(
            config, verl, whole, step, tmp_path / "shuffled.yaml", reward="shuffled",
            reward_args={"zeros": True, "price": 0.25},
        )  # fmt: skip
    finally:
        tq.close()

    check_shuffled(*shuffled, step)
    check_by_turn(*by_turn)
    assert len(found) == 16
    assert all((heard == 0).all() for _, heard, _ in found.values())
    spreads = []
    for uid in ("first", "second"):
        sessions = [session for group, session in played if group == uid]
        rewards = torch.stack([found[f"{uid}_{session}_0"][2] for session in sessions])
        expected = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        for session, advantage in zip(sessions, expected, strict=True):
            for seat in (0, 1):
                own = found[f"{uid}_{session}_{seat}"][0]
                assert len(own) > 0
                assert torch.allclose(own, advantage.expand_as(own), atol=1e-5)
        spreads.append(rewards.std())
    assert min(spreads) > 0


def pay_again(
    config: Config, verl: Any, batch: Any, step: int, file: Path, **train: Any
) -> tuple[Config, list[Dialogue], list[Any]]:
    """What verl's trainer makes of the same rows at a step (the first is 0) of a run that pays otherwise: for each real row its dialogue, its rewards, its mask
    and its advantages, in the order of the dialogues' ids.
    """
    import transfer_queue as tq
    from omegaconf import OmegaConf

    from slim_rl.backends.verl.launch import build_overrides

    changed = with_train(config, **train)
    changed.write(file)
    algorithm = {"adv_estimator": build_overrides(changed).values["algorithm.adv_estimator"]}
    other = OmegaConf.merge(verl, {"slim_rl": {"config": str(file)}, "algorithm": algorithm})
    metrics: dict[str, Any] = {}
    PPOTrainer._compute_advantage(SimpleNamespace(config=other, global_steps=step + 1), batch, metrics)  # type: ignore[arg-type]
    keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")]
    fields = ["extra_fields", "rm_scores", "response_mask", "advantages"]
    data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=fields)
    dialogues = [Dialogue.from_dict(extra["dialogue"]) for extra in data.pop("extra_fields").tolist()]
    rows = zip(*([row.tolist() for row in data[name].unbind()] for name in fields[1:]), strict=True)
    measured = {f"dialogue/{name}": value for name, value in batch_metrics(dialogues).items()}
    assert "dialogue/questions" in measured and {name: metrics[name] for name in measured} == pytest.approx(measured)
    both = sorted(zip(dialogues, rows, strict=True), key=lambda pair: pair[0].id)
    return changed, [dialogue for dialogue, _ in both], [row for _, row in both]


def with_train(config: Config, **train: Any) -> Config:
    return config.model_copy(update={"train": config.train.model_copy(update=train)})


def moves(config: Config, dialogues: list[Dialogue], step: int) -> bool:
    """Whether a dialogue is paid another's reward at this step."""
    training_reward = make_training_reward(config)
    return training_reward(dialogues, step).rewards != [training_reward.reward(dialogue) for dialogue in dialogues]


def check_shuffled(config: Config, dialogues: list[Dialogue], rows: list[Any], step: int) -> None:
    paid = make_training_reward(config)(dialogues, step).rewards
    assert [sum(rewards) for rewards, _, _ in rows] == pytest.approx(paid)
    for dialogue, (_, mask, advantages) in zip(dialogues, rows, strict=True):
        group = [reward for other, reward in zip(dialogues, paid, strict=True) if other.group == dialogue.group]
        own = paid[dialogues.index(dialogue)]
        expected = (own - np.mean(group)) / (np.std(group, ddof=1) + 1e-6)  # type: ignore[arg-type, operator]
        assert advantages == pytest.approx([bit * expected for bit in mask], abs=1e-5)


def check_by_turn(config: Config, dialogues: list[Dialogue], rows: list[Any]) -> None:
    found = make_training_reward(config)(dialogues, 1).advantages
    assert found is not None
    for dialogue, values, (_, _, advantages) in zip(dialogues, found, rows, strict=True):
        assert advantages == pytest.approx(by_token(dialogue, values, len(advantages)), abs=1e-5)
