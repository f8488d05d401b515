"""verl's real worker with a server of its protocol: runs small enough for a CPU, dialogues played in them, batched as verl does."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("verl")
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker
from verl.protocol import DataProto
from verl.utils.dataset.rl_dataset import RLHFDataset as RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from slim_rl.backends.verl.data import write_data
from slim_rl.backends.verl.settings import compose, settings
from slim_rl.config import ROOT_KEY, Config, parse_config
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue

PLANS = (
    "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel",
    "[propose]\nBLEU: Daniel Nguyen\nElectra: Ava Li\nGloVe: Sofia Patel",
)
ASKED_TO_ACCEPT = "or [reject].<|im_end|>\n<|im_start|>assistant"  # how the text ends that a seat reads of a plan


def make_run(folder: Path, model: Path, own: dict[str, Any], *extra: str) -> tuple[Config, Any]:
    """Writes a run's files as the launcher does. Returns slim_rl's config and verl's."""
    data = {"name": "test", "output_dir": str(folder), "game": {"n": 3}, "policy": {"model": str(model)}}
    data |= {"data": {"train": str(folder / "games.jsonl"), "num_train": 4}}
    data |= {"limits": {"turn_tokens": 128, "dialogue_tokens": 1024}, "train": {"games_per_step": 2, "group_size": 4}}
    config = parse_config(data | own)
    composed = compose(settings(config), ["actor_rollout_ref.rollout.agent.num_workers=1", *extra])
    write_data(config, config.run_dir.absolute())
    written = yaml.safe_dump({ROOT_KEY: config.model_dump(mode="json")}, sort_keys=False)
    (config.run_dir.absolute() / "config.yaml").write_text(written)
    return config, composed


def logged(config: Config) -> list[Dialogue]:
    """The dialogues in a run's log."""
    return list(read_log(config.run_dir / "logs"))


class Server:
    """verl's `LLMServerClient`, as far as an agent loop uses it. What it samples is a function of the prompt's text."""

    def __init__(self, tokenizer: Any, speak: Callable[[str], str | Exception]) -> None:
        self.tokenizer, self.speak = tokenizer, speak
        self.calls: list[tuple[list[int], dict[str, Any]]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> Any:
        self.calls.append((list(prompt_ids), dict(sampling_params)))
        await asyncio.sleep(0)
        said = self.speak(self.tokenizer.decode(prompt_ids))
        if isinstance(said, Exception):
            raise said
        ids = [*self.tokenizer.encode(said, add_special_tokens=False), self.tokenizer.eos_token_id]
        ids = ids[: sampling_params["max_tokens"]]
        logprobs = [-0.25 - 0.001 * place for place in range(len(ids))] if sampling_params.get("logprobs") else None
        fields = {"global_steps": 3, "min_global_steps": 3, "max_global_steps": 3}
        return TokenOutput(
            token_ids=ids, log_probs=logprobs, stop_reason="completed", num_preempted=0, extra_fields=fields
        )


def speak(text: str) -> str:
    """Asks, then proposes until something is accepted; accepts what the other seat proposes."""
    turn = text.count("<|im_start|>assistant")
    if text.rstrip().endswith(ASKED_TO_ACCEPT):
        return "[accept]"
    return "[message] What is Ava Li on BLEU?" if turn == 1 else PLANS[turn % 2]


class Worker(AgentLoopWorker):
    """verl's worker up to where its newer trainer would put the outputs into the TransferQueue."""

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **row: Any) -> list[AgentLoopOutput]:
        return output if isinstance(output, list) else [output]

    async def play(self, rows: list[dict[str, Any]], n: int) -> dict[str, list[AgentLoopOutput]]:
        """n sessions of each row, side by side, as `AgentLoopWorkerTQ._run_prompt` has them; by "{uid}_{session}"."""
        params = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
        usual = {"agent_name": self.rollout_config.agent.default_agent_loop, "global_steps": 5}
        trajectory = {"step": 5, "sample_index": 0, "rollout_n": 0, "validate": False}
        keys = [(row, session) for row in rows for session in range(n)]
        played = (self._run_agent_loop(params, trajectory, session_id=i, **usual, **row) for row, i in keys)
        outputs = await asyncio.gather(*played)
        return {f"{row['uid']}_{i}": output for (row, i), output in zip(keys, outputs, strict=True)}  # type: ignore[misc]


def play(verl: Any, server: Server, rows: list[dict[str, Any]], n: int = 4) -> dict[str, list[AgentLoopOutput]]:
    return asyncio.run(Worker(verl, server).play(rows, n))  # type: ignore[arg-type]


def batch_of(outputs: dict[str, list[AgentLoopOutput]]) -> tuple[DataProto, list[str]]:
    """The outputs as verl's newer trainer pads them, and their keys in its TransferQueue."""
    named = {f"{session}_{i}": each.as_dict() for session, several in outputs.items() for i, each in enumerate(several)}
    padded = {
        name: torch.nn.utils.rnn.pad_sequence([row[name] for row in named.values()], batch_first=True)
        for name in ("responses", "response_mask", "rm_scores", "rollout_log_probs")
    }
    padded["token_level_rewards"] = padded["rm_scores"].clone()
    uids = np.array([key.rsplit("_", 2)[0] for key in named], dtype=object)
    return DataProto.from_dict(tensors=padded, non_tensors={"uid": uids}), list(named)


def advantages_of(data: DataProto) -> torch.Tensor:
    """Each row's advantage: the one value its trainable tokens have."""
    rows = zip(data.batch["advantages"], data.batch["response_mask"], strict=True)
    return torch.stack([row[mask == 1][0] for row, mask in rows])
