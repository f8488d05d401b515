"""What the tests of the slime hook share: slime itself, its arguments and samples as its rollout code hands them over, and a model that
follows a script. Where slime's sources are not at hand, these tests are skipped.
"""

import asyncio
import copy
import random
import re
from argparse import Namespace
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.record import Dialogue
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import MatchingSettings
from tests.fakes.sglang_server import SGLangServer
from tests.fakes.upstream import import_slime

import_slime()

from slime.utils import http_utils  # noqa: E402
from slime.utils.misc import SingletonMeta  # noqa: E402
from slime.utils.types import Sample  # noqa: E402

from slim_rl.rollout import generate  # noqa: E402

GAMES = list(generate_games(12, MatchingSettings(n=4), seed=3))


class Talker:
    """A model that asks `questions` times and then proposes, again each time it is turned down."""

    def __init__(self, tokenizer: Any, questions: int = 3, n: int = 4) -> None:
        self.chat, self.questions, self.roster = Chat(tokenizer), questions, Roster.default(n)

    def __call__(self, ids: list[int], rng: random.Random) -> list[int]:
        return self.chat.said_ids(self.text(ids, rng))

    def text(self, ids: list[int], rng: random.Random) -> str:
        turns = (ids.count(self.chat.end_id) - 2) // 2
        heard = self.chat.tokenizer.decode(ids[-200:])
        if re.search(r"\[accept\] or \[reject\]", heard.rpartition("<|im_start|>user")[2]):
            return "[accept]"
        if turns < self.questions:
            reviewer, paper = rng.choice(self.roster.reviewers), rng.choice(self.roster.short_papers)
            return f"[message] What is {reviewer} on {paper}?"
        order = rng.sample(self.roster.reviewers, self.roster.n)
        lines = [f"{paper}: {reviewer}" for paper, reviewer in zip(self.roster.short_papers, order, strict=True)]
        return "\n".join(["[propose]", *lines])


def make_args(
    tokenizer_dir: Path, port: int, tmp_path: Path, slim_rl: dict[str, Any] | None = None, **more: Any
) -> Namespace:
    """slime's arguments as far as rollouts read them."""
    config: dict[str, Any] = {"name": "test", "output_dir": str(tmp_path), "game": {"n": 4, "max_turns": 12}}
    config |= {"partner": {"kind": "shy", "args": {"accept_fraction": 0.0}}, "limits": {"turn_tokens": 200}}
    config |= {"slime": {"engine_retry_seconds": 2.0}}
    for key, value in (slim_rl or {}).items():
        merged = key not in ("game", "partner") or "environment" not in (slim_rl or {})  # another game has its own
        config[key] = {**config[key], **value} if isinstance(value, dict) and key in config and merged else value
    values: dict[str, Any] = {
        "hf_checkpoint": str(tokenizer_dir), "save": str(tmp_path), "slim_rl": config, "sglang_router_ip": "127.0.0.1",
        "sglang_router_port": port, "router_policy": "consistent_hashing", "sglang_server_concurrency": 64, "sglang_dp_size": 1,
        "rollout_num_gpus": 1, "rollout_num_gpus_per_engine": 1, "use_distributed_post": False, "rollout_seed": 42,
        "rollout_batch_size": 2, "n_samples_per_prompt": 4, "rollout_temperature": 1.0, "rollout_top_p": 1.0, "rollout_top_k": -1,
        "rollout_max_response_len": 4000, "rollout_max_context_len": 8000, "rollout_stop": None, "rollout_stop_token_ids": None,
        "rollout_skip_special_tokens": False, "partial_rollout": False, "use_rollout_routing_replay": False, "reward_key": None,
        "advantage_estimator": "grpo", "rewards_normalization": True, "grpo_std_normalization": True,
        "wandb_always_use_train_step": False, "use_wandb": False, "use_tensorboard": False, "num_layers": 2, "moe_router_topk": 2,
        **more,
    }  # fmt: skip
    return Namespace(**values)


def make_group(size: int = 4, game: int = 0, first: int = 0) -> list[Sample]:
    """A group as slime's data source gives it out."""
    env = MatchingEnv()
    env.reset(GAMES[game])
    metadata = {"game_state": GAMES[game].to_dict(), "game_id": f"g{game}", "seat": 0}
    given = {"group_index": game, "prompt": env.prompt(0)}
    numbers = range(first, first + size)
    return [Sample(index=i, metadata=copy.deepcopy(metadata), session_id=f"session-{i}", **given) for i in numbers]


def sampling_params(args: Namespace, **more: Any) -> dict[str, Any]:
    """What slime hands to every `generate` of a rollout."""
    if args.rollout_top_p != 1.0:
        more.setdefault("custom_params", {"return_top_p_token_ids": True})
    sampling = {name: getattr(args, f"rollout_{name}") for name in ("temperature", "top_p", "top_k")}
    usual = {
        "max_new_tokens": args.rollout_max_response_len,
        "stop": None,
        "stop_token_ids": None,
        "no_stop_trim": True,
    }
    return sampling | usual | {"skip_special_tokens": False, "spaces_between_special_tokens": False, **more}


def run(args: Namespace, work: Coroutine[Any, Any, Any]) -> Any:
    """Runs `work` on a new event loop, with slime's process-wide state as at its start."""
    SingletonMeta._instances.clear()
    http_utils._http_client = None
    http_utils.init_http_client(args)
    return asyncio.run(work)


def serve(tokenizer: Any, **settings: Any) -> SGLangServer:
    return SGLangServer(Talker(tokenizer), **settings)


def check_invariant(sample: Sample) -> None:
    """The token invariant, on a sample that is ready for training."""
    length = sample.response_length
    assert len(sample.loss_mask) == len(sample.rollout_log_probs) == length > 0
    assert len(sample.tokens) > length
    for logprob, mask in zip(sample.rollout_log_probs, sample.loss_mask, strict=True):
        assert mask or logprob == 0.0


Status = Sample.Status


async def play_group(args: Any, group: list[Sample], evaluation: bool = False, **params: Any) -> list[Any]:
    """As slime plays a group: side by side, each with a copy of the parameters (in evaluation: all with the same dict)."""
    shared = sampling_params(args, **params)
    return await asyncio.gather(
        *(generate(args, s, shared if evaluation else dict(shared), evaluation=evaluation) for s in group)
    )


def record(sample: Sample) -> Dialogue:
    return Dialogue.from_dict(sample.metadata["dialogue"])
