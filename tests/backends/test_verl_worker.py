"""A step of verl's newer trainer up to the advantages, in its real processes: Ray, load balancer, agent loop worker, TransferQueue,
replay buffer. Only the engine is a stand-in.
"""

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
from verl.workers.rollout.router import GlobalRequestLoadBalancer

import slim_rl.backends.verl.plugin  # noqa: F401  (as verl's trainer imports it)
from tests.backends.verl_setup import ASKED_TO_ACCEPT, PLANS, RLHFDataset, Server, make_run
from tests.paths import ROOT

pytestmark = pytest.mark.verl


class Engine(Server, GlobalRequestLoadBalancer):
    """Numbers the dialogues of each game that open, plays plan 0 in even ones and plan 1 in odd ones, and fails in the third of all.

    It is in the process of verl's load balancer, since each process takes ten seconds to import verl.
    """

    def __init__(self, tokenizer: Any) -> None:
        import ray

        super().__init__(tokenizer, self._say)
        GlobalRequestLoadBalancer.__init__(self, {"engine": ray.get_runtime_context().current_actor})
        self.opened: Counter[str] = Counter()  # by what the game deals its opener

    def _say(self, text: str) -> str | Exception:
        number = re.search(r"Dialogue (\d+)", text)
        if number is None:
            self.opened[text] += 1
            failed = self.opened.total() == 3
            return RuntimeError("the engine is gone") if failed else f"[message] Dialogue {self.opened[text]}."
        if text.rstrip().endswith(ASKED_TO_ACCEPT):
            return "[accept]"
        return PLANS[int(number[1]) % 2] if "You speak first" in text else "[message] Yes?"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import ray

    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    small = {"num_cpus": 4, "include_dashboard": False, "object_store_memory": 200 * 2**20, "log_to_driver": False}
    ray.init(address="local", _system_config={"worker_niceness": 0}, **small)  # Ray's 15 starves on a busy machine
    yield ray
    ray.shutdown()


@pytest.mark.timeout(400)
def test_a_step_of_self_play_reaches_the_advantages(cluster: Any, model: Path, tokenizer: Any, tmp_path: Path) -> None:
    import torch
    import transfer_queue as tq
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.utils import tensordict_utils as tu
    from verl.utils.dataset.rl_dataset import collate_fn
    from verl.workers.rollout.llm_server import LLMServerClient

    queue = ("transfer_queue.enable=true", "transfer_queue.backend.SimpleStorage.num_data_storage_units=1")
    _, verl = make_run(tmp_path, model, {"partner": {"kind": "self"}}, *queue)
    OmegaConf.resolve(verl)
    dataset = RLHFDataset(verl.data.train_files, tokenizer, verl.data)
    rows = [dataset[0], dataset[1]]
    engine = cluster.remote(Engine).remote(tokenizer)

    tq.init(verl.transfer_queue)
    try:
        manager = AgentLoopManagerTQ.create(config=verl, llm_client=LLMServerClient(verl, engine))
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
    finally:
        tq.close()

    assert len(found) == 16
    assert all((heard == 0).all() for _, heard, _ in found.values())
    for uid in ("first", "second"):
        sessions = [session for group, session in played if group == uid]
        rewards = torch.stack([found[f"{uid}_{session}_0"][2] for session in sessions])
        assert rewards.std() > 0
        expected = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        for session, advantage in zip(sessions, expected, strict=True):
            for seat in (0, 1):
                own = found[f"{uid}_{session}_{seat}"][0]
                assert len(own) and torch.allclose(own, advantage.expand_as(own), atol=1e-5)
