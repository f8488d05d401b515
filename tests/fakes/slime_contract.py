"""slime as far as the hook touches it, stated in few words, so that the hook's tests stand where slime is not installed.

`import_slime()` gives the real one where it can be had: installed, or a checkout named by SLIME_DIR. Otherwise it installs this
statement under slime's names. The tests are the same for both, so that a run with SLIME_DIR shows whether the statement holds.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import importlib.util
import json
import os
import struct
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Any, ClassVar

import httpx


def import_slime() -> bool:
    """Makes `slime` importable. Returns whether it is the real one."""
    checkout = os.environ.get("SLIME_DIR")
    if checkout and checkout not in sys.path:
        sys.path.insert(0, checkout)
    if "slime" not in sys.modules:
        if checkout or importlib.util.find_spec("slime") is not None:
            importlib.import_module("slime.rollout.sglang_rollout")
        else:
            _install()
    return sys.modules["slime"].__spec__ is not None


# --------------------------------------------------------------------------------------------------- slime.utils.types
@dataclass
class Statistics:
    """What is summed over a sample's engine calls."""

    cached_tokens: int = 0
    total_prompt_tokens: int = 0


@dataclass
class Sample:
    """One training sample. `append_response_tokens` is the one way tokens get in; it keeps all that is per token aligned."""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: Any = ""
    multimodal_inputs: dict[str, Any] | None = None
    multimodal_train_inputs: dict[str, Any] | None = None
    multimodal_train_input_id: str | None = None
    apply_chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: Any = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    rollout_top_p_token_ids: Any = None
    rollout_top_p_token_offsets: Any = None
    rollout_routed_experts: Any = None
    remove_sample: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    generate_function_path: str | None = None
    custom_rm_path: str | None = None
    train_metadata: dict[str, Any] | None = None
    session_id: str | None = None
    non_generation_time: float = 0.0
    prefix_cache_info: Statistics = field(default_factory=Statistics)

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    status: Status = Status.PENDING

    def get_reward_value(self, args: Namespace) -> float:
        return self.reward if not args.reward_key else self.reward[args.reward_key]

    def append_response_tokens(
        self,
        args: Any = None,
        *,
        tokens: Any = None,
        log_probs: Any = None,
        trainable: bool = True,
        meta_info: dict[str, Any] | None = None,
    ) -> None:
        tokens = list(tokens or [])
        if trainable and (log_probs is None or len(log_probs) != len(tokens)):
            raise ValueError("sampled tokens need a logprob each")
        if not trainable and log_probs is not None:
            raise ValueError("tokens that were not sampled have no logprobs")
        self.loss_mask = (self.loss_mask or []) + [int(trainable)] * len(tokens)
        self.rollout_log_probs = (self.rollout_log_probs or []) + list(log_probs or [0.0] * len(tokens))
        self.tokens = self.tokens + tokens
        self.response_length += len(tokens)
        self._keep_top_p(meta_info or {}, len(tokens), trainable)
        if meta_info is None:
            return
        if "routed_experts" in meta_info:
            row = args.num_layers * args.moe_router_topk
            experts = _int32(meta_info["routed_experts"])
            if len(experts) != (len(self.tokens) - 1) * row:
                raise ValueError("routed experts must cover every token but the last")
            self.rollout_routed_experts = [experts[at : at + row] for at in range(0, len(experts), row)]
        self.prefix_cache_info.cached_tokens += meta_info.get("cached_tokens", 0)
        self.prefix_cache_info.total_prompt_tokens += meta_info.get("prompt_tokens", 0)
        self.weight_versions.append(meta_info["weight_version"])
        ends = {"length": self.Status.TRUNCATED, "abort": self.Status.ABORTED, "stop": self.Status.COMPLETED}
        self.status = ends[meta_info["finish_reason"]["type"]]

    def _keep_top_p(self, meta_info: dict[str, Any], count: int, trainable: bool) -> None:
        ids, offsets = self.rollout_top_p_token_ids or [], self.rollout_top_p_token_offsets or [0]
        if count and "top_p_token_ids" in meta_info:
            new = _int32(meta_info["top_p_token_offsets"])
            if len(new) != count + 1:
                raise ValueError("top-p offsets must be one more than the tokens")
            ids = [*ids, *_int32(meta_info["top_p_token_ids"])]
            offsets = [*offsets, *(offsets[-1] + offset for offset in new[1:])]
        elif trainable or self.rollout_top_p_token_offsets is None:
            return
        else:
            offsets = [*offsets, *[offsets[-1]] * count]
        if len(offsets) != self.response_length + 1:
            raise ValueError("top-p offsets must be one more than the response")
        self.rollout_top_p_token_ids, self.rollout_top_p_token_offsets = ids, offsets


def _int32(text: str) -> list[int]:
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}i", data))


# ---------------------------------------------------------------------------------------------- slime.utils.http_utils
def init_http_client(args: Namespace) -> None:
    """Opens the process's one client, if there is none."""
    module = sys.modules["slime.utils.http_utils"]
    if getattr(module, "_http_client", None) is None:
        module._http_client = httpx.AsyncClient(timeout=httpx.Timeout(None), trust_env=False)  # type: ignore[attr-defined]


async def post(url: str, payload: Any, max_retries: int = 60, headers: dict[str, str] | None = None) -> Any:
    """Posts JSON. Any error is tried again after a second; the last one is raised."""
    client = sys.modules["slime.utils.http_utils"]._http_client
    for attempt in range(1, max_retries + 1):
        try:
            response = await client.post(url, json=payload or {}, headers=headers)
            response.raise_for_status()
            try:
                return json.loads(response.content)
            except json.JSONDecodeError:
                return response.text
        except Exception:
            if attempt == max_retries:
                raise
            await asyncio.sleep(1)
    raise AssertionError


# -------------------------------------------------------------------------------------- slime.rollout.sglang_rollout
class SingletonMeta(type):
    _instances: ClassVar[dict[type, Any]] = {}

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls not in cls._instances:
            cls._instances[cls] = super().__call__(*args, **kwargs)
        return cls._instances[cls]


class GenerateState(metaclass=SingletonMeta):
    """One a process. `aborted` is set while slime calls a rollout off."""

    def __init__(self, args: Namespace) -> None:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(args.hf_checkpoint)
        engines = max(1, args.rollout_num_gpus // args.rollout_num_gpus_per_engine)
        self.semaphore = asyncio.Semaphore(args.sglang_server_concurrency * engines)  # of samples
        self.sampling_params = {
            "temperature": args.rollout_temperature,
            "top_p": args.rollout_top_p,
            "top_k": args.rollout_top_k,
            "max_new_tokens": args.rollout_max_response_len,
        }
        self.aborted = False


async def generate_and_rm_group(
    args: Namespace, group: list[Sample], sampling_params: dict[str, Any], evaluation: bool = False
) -> list[Any]:
    """Each sample by the custom function, within the semaphore."""
    state, generate = GenerateState(args), load_function(args.custom_generate_function_path)

    async def one(sample: Sample) -> Any:
        async with state.semaphore:
            return await generate(args, sample, dict(sampling_params), evaluation=evaluation)

    return await asyncio.gather(*map(one, group))


def generate_rollout(args: Namespace, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """slime's own rollout, which only the real one has."""
    raise NotImplementedError


# --------------------------------------------------------------------------------------------- slime.rollout.base_types
@dataclass
class RolloutFnTrainOutput:
    samples: list[Any]
    metrics: dict[str, Any] | None = None


# -------------------------------------------------------------------------------------------------- slime.utils, others
def load_function(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


_loop: asyncio.AbstractEventLoop | None = None


def run(work: Any) -> Any:
    """Runs a coroutine on the one event loop, which goes on when the call is over."""
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_loop.run_forever, daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, _loop).result()


# -------------------------------------------------------------------------------- slime.rollout.filter_hub.base_types
@dataclass
class DynamicFilterOutput:
    keep: bool
    reason: str | None = None
    keep_when_insufficient: bool = False


def call_dynamic_filter(judge: Any, *args: Any) -> DynamicFilterOutput:
    return DynamicFilterOutput(keep=True) if judge is None else judge(*args)


def should_drop_dynamic_filter_output(
    output: DynamicFilterOutput, *, remaining_batch_size: int, target_data_size: int
) -> bool:
    enough = remaining_batch_size > target_data_size
    return not output.keep and (enough or not output.keep_when_insufficient)


class MetricGatherer:
    """Counts dropped groups by reason."""

    def __init__(self) -> None:
        self.reasons: dict[str, int] = {}

    def on_dynamic_filter_drop(self, reason: str | None) -> None:
        if reason:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def collect(self) -> dict[str, Any]:
        return {f"rollout/dynamic_filter/drop_{reason}": count for reason, count in self.reasons.items()}


# -------------------------------------------------------------------------------------------------- slime.observability
class _Span:
    def update(self, attrs: dict[str, Any]) -> None:
        self.attrs = attrs


@contextmanager
def trace_span(target: Any, name: str, *, attrs: dict[str, Any] | None = None) -> Iterator[_Span]:
    yield _Span()


def build_sglang_meta_trace_attrs(meta: dict[str, Any]) -> dict[str, Any]:
    return {"finish_reason": meta["finish_reason"]["type"]}


def compute_rollout_step(args: Namespace, rollout_id: int) -> int:
    return rollout_id


def log(args: Namespace, metrics: dict[str, Any], step_key: str) -> None:
    assert step_key in metrics


_MODULES: dict[str, tuple[Any, ...]] = {
    "slime": (),
    "slime.utils": (),
    "slime.utils.types": (Sample,),
    "slime.utils.misc": (SingletonMeta, load_function),
    "slime.utils.async_utils": (run,),
    "slime.utils.http_utils": (init_http_client, post),
    "slime.rollout": (),
    "slime.rollout.sglang_rollout": (GenerateState, generate_and_rm_group, generate_rollout),
    "slime.rollout.base_types": (RolloutFnTrainOutput,),
    "slime.rollout.filter_hub": (),
    "slime.rollout.filter_hub.base_types": (
        DynamicFilterOutput,
        MetricGatherer,
        call_dynamic_filter,
        should_drop_dynamic_filter_output,
    ),
    "slime.observability": (),
    "slime.observability.trace_utils": (trace_span, build_sglang_meta_trace_attrs),
    "slime.observability.logging_utils": (log,),
    "slime.observability.metric_utils": (compute_rollout_step,),
}


def _install() -> None:
    for name, members in _MODULES.items():
        module = ModuleType(name)
        module.__path__ = []
        for member in members:
            setattr(module, member.__name__, member)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
