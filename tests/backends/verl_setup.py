"""A run as verl sees it, small enough for a CPU: a tiny checkpoint, the composed config, and a server that speaks verl's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from slim_rl.backends.verl.data import write_data
from slim_rl.backends.verl.settings import compose
from slim_rl.backends.verl.settings import settings as build_overrides
from slim_rl.config import ROOT_KEY, Config, parse_config
from tests.fakes.models import tiny_qwen3


def checkpoint(folder: Path, tokenizer: Any) -> Path:
    """A Qwen3 of two thin layers, with its tokenizer."""
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    tiny_qwen3(len(tokenizer), **ends).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_run(folder: Path, model: Path, settings: dict[str, Any], *extra: str) -> tuple[Config, Any]:
    """Writes a run's files as the launcher does. Returns slim_rl's config and verl's."""
    config = parse_config(
        {
            "name": "test",
            "output_dir": str(folder),
            "game": {"n": 3},
            "data": {"train": str(folder / "games.jsonl"), "num_train": 4},
            "policy": {"model": str(model)},
            "limits": {"turn_tokens": 128, "dialogue_tokens": 1024},
            "train": {"games_per_step": 2, "group_size": 4},
        }
        | settings
    )
    composed = compose(build_overrides(config), ["actor_rollout_ref.rollout.agent.num_workers=1", *extra])
    write_data(config, config.run_dir.absolute())
    data = {ROOT_KEY: config.model_dump(mode="json")}
    (config.run_dir.absolute() / "config.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return config, composed


class Server:
    """verl's `LLMServerClient`, as far as an agent loop uses it. What it samples is a function of the prompt's text."""

    def __init__(self, tokenizer: Any, speak: Callable[[str], str | Exception]) -> None:
        self.tokenizer, self.speak = tokenizer, speak
        self.calls: list[tuple[str, list[int], dict[str, Any]]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.calls.append((request_id, list(prompt_ids), dict(sampling_params)))
        await asyncio.sleep(0)
        said = self.speak(self.tokenizer.decode(prompt_ids))
        if isinstance(said, Exception):
            raise said
        ids = [
            *self.tokenizer.encode(said, add_special_tokens=False),
            self.tokenizer.convert_tokens_to_ids("<|im_end|>"),
        ]
        ids = ids[: sampling_params["max_tokens"]]
        logprobs = [-0.25 - 0.001 * place for place in range(len(ids))] if sampling_params.get("logprobs") else None
        fields: dict[str, Any] = {"global_steps": 3, "min_global_steps": 3, "max_global_steps": 3}
        if sampling_params.get("prompt_logprobs") == 0:  # of each token's successor, and one row more
            fields["prompt_ids"] = [*([token] for token in prompt_ids[1:]), [0]]
            fields["prompt_logprobs"] = [*([-0.125] for _ in prompt_ids[1:]), [0.0]]
        return TokenOutput(
            token_ids=ids, log_probs=logprobs, stop_reason="completed", num_preempted=0, extra_fields=fields
        )
