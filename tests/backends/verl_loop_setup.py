"""verl's real worker with a server of its protocol: how tests play dialogues in it, and batch them as verl does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl")
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker
from verl.protocol import DataProto
from verl.utils.dataset.rl_dataset import RLHFDataset

from slim_rl.config import Config
from slim_rl.dialogue.log import read_log
from tests.backends.verl_setup import Server, checkpoint, make_run

PLANS = [
    "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel",
    "[propose]\nBLEU: Daniel Nguyen\nElectra: Ava Li\nGloVe: Sofia Patel",
]


def speak(text: str) -> str:
    """Asks, then proposes until something is accepted; accepts what the other seat proposes."""
    turn = text.count("<|im_start|>assistant")
    if text.rstrip().endswith("or [reject].<|im_end|>\n<|im_start|>assistant"):
        return "[accept]"
    return "[message] What is Ava Li on BLEU?" if turn == 1 else PLANS[turn % 2]


class Worker(AgentLoopWorker):
    """verl's worker up to where its newer trainer would put the outputs into the TransferQueue."""

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **row: Any) -> list[AgentLoopOutput]:
        return output if isinstance(output, list) else [output]

    async def play(self, rows: list[dict[str, Any]], n: int) -> dict[str, list[AgentLoopOutput]]:
        """n sessions of each row, side by side, as `AgentLoopWorkerTQ._run_prompt` has them; by "{uid}_{session}"."""
        name = self.rollout_config.agent.default_agent_loop
        params = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
        trajectory = {"step": 5, "sample_index": 0, "rollout_n": 0, "validate": False}
        keys = [(row, session) for row in rows for session in range(n)]
        outputs = await asyncio.gather(
            *(
                self._run_agent_loop(params, trajectory, agent_name=name, session_id=i, global_steps=5, **row)
                for row, i in keys
            )
        )
        return {f"{row['uid']}_{i}": output for (row, i), output in zip(keys, outputs, strict=True)}  # type: ignore[misc]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    return checkpoint(tmp_path_factory.mktemp("model"), tokenizer)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Callable[..., tuple[Config, Any]]:
    """Runs by their settings, each written once."""
    made: dict[str, tuple[Config, Any]] = {}

    def run(settings: dict[str, Any] | None = None, *extra: str) -> tuple[Config, Any]:
        key = json.dumps([settings, extra])
        if key not in made:
            made[key] = make_run(tmp_path_factory.mktemp("run"), model, settings or {}, *extra)
        return made[key]

    return run


@pytest.fixture(scope="module")
def rows(runs: Callable[..., tuple[Config, Any]], tokenizer: Any) -> list[dict[str, Any]]:
    """Two games, read by verl's own dataset."""
    _, verl = runs()
    dataset = RLHFDataset(verl.data.train_files, tokenizer, verl.data)
    assert len(dataset) == 4
    return [dataset[index] | {"uid": f"game{index}"} for index in range(2)]


@pytest.fixture
def logs(runs: Callable[..., tuple[Config, Any]]) -> Iterator[Callable[[Config], list[Any]]]:
    def read(config: Config) -> list[Any]:
        folder = Path(config.output_dir) / config.name / "logs"
        return [dialogue for path in folder.glob("*.jsonl") for dialogue in read_log(path)]

    yield read


def play(verl: Any, server: Server, rows: list[dict[str, Any]], n: int = 4) -> dict[str, list[AgentLoopOutput]]:
    return asyncio.run(Worker(verl, server).play(rows, n))  # type: ignore[arg-type]


def batch_of(outputs: dict[str, list[AgentLoopOutput]]) -> tuple[DataProto, list[str]]:
    """The outputs as verl's newer trainer pads them, and their keys in its TransferQueue."""
    keys, rows = [], []
    for session, several in outputs.items():
        for index, output in enumerate(several):
            keys.append(f"{session}_{index}")
            rows.append(output.as_dict())
    fields = {"responses": 0, "response_mask": 0, "rm_scores": 0.0, "rollout_log_probs": 0.0}
    padded = {
        name: torch.nn.utils.rnn.pad_sequence([row[name] for row in rows], batch_first=True, padding_value=fill)
        for name, fill in fields.items()
    }
    padded["token_level_rewards"] = padded["rm_scores"].clone()
    uids = np.array([key.rsplit("_", 2)[0] for key in keys], dtype=object)
    return DataProto.from_dict(tensors=padded, non_tensors={"uid": uids}), keys


def advantages_of(data: DataProto) -> torch.Tensor:
    """Each row's advantage: the one value its trainable tokens have."""
    return torch.stack(
        [row[mask == 1][0] for row, mask in zip(data.batch["advantages"], data.batch["response_mask"], strict=True)]
    )
