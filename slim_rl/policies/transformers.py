"""The in-process policy: a transformers model that samples for all waiting dialogues at once (a wave).

Invariant: the logprob of a token is the one under the distribution it was drawn from (temperature and top-p applied), and a turn
is drawn from the seed, the dialogue's key and the turn's place in it alone: not from the order in which dialogues came, nor, but
for rounding, from who else was in the wave. So a recorded partner meets the same words again.

A dialogue that reaches its turn waits; once no other dialogue can get further without the model, all that wait are sampled in
one batch. With instant partners that is every live dialogue; with a slow partner, those that are ready.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)
from transformers.utils import logging

from slim_rl.config import PolicyConfig
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.policy import PolicyFailure, Sampled
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import ConfigError, DataError
from slim_rl.files import disk_errors, replacing_folder
from slim_rl.policies import check_model_name
from slim_rl.policies.turn_cache import TurnCache, batched, unbatched
from slim_rl.seeds import seed_of


@dataclass(slots=True)
class _Request:
    key: str
    input_ids: list[int]
    max_tokens: int
    future: asyncio.Future[Sampled]


class TransformersPolicy:
    """Samples from a causal language model held in this process.

    Args:
        model: the model; each wave uses its present weights, so a trainer may change its weights between waves.
        stop_ids: tokens that end a turn (`Chat.stop_ids`).
        pad_id: any id; padding is masked.
        max_batch: dialogues sampled in one forward pass; a larger wave is done in parts.
        cache_bytes: memory for what was computed of a dialogue's earlier turns; 0: every turn computes its whole input.
        max_context: positions the model has; a longer input ends its dialogue, not the wave.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        stop_ids: list[int],
        *,
        pad_id: int = 0,
        temperature: float = 1.0,
        top_p: float = 1.0,
        max_batch: int = 256,
        cache_bytes: int = 2**30,
        name: str = "",
    ) -> None:
        self.model = model
        self.stop_ids = stop_ids
        self.pad_id = pad_id
        self.temperature, self.top_p = temperature, top_p
        self.max_batch = max_batch
        self.name = name or model.config.name_or_path
        self.max_context = int(model.config.max_position_embeddings)
        self.tokens_sampled = 0
        self.turns = TurnCache(cache_bytes) if cache_bytes and TurnCache.suits(model) else None
        self._seed = 0
        self._waiting: list[_Request] = []
        self._flush: asyncio.Task[None] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        return {"engine": "transformers", "model": self.name, "temperature": self.temperature, "top_p": self.top_p}

    def reseed(self, seed: int) -> None:
        """Turns that follow are drawn with `seed`, and with the weights as they are now."""
        self._seed = seed
        if self.turns is not None:
            self.turns.clear()

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.policy.Policy`. Raises PolicyFailure if the input leaves no room in the model's context."""
        room = self.max_context - len(input_ids)
        if room <= 0:
            raise PolicyFailure(
                f"the input has {len(input_ids)} tokens but the model has {self.max_context} positions",
                StopReason.CONTEXT_LENGTH,
            )
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(key, list(input_ids), min(max_tokens, room), future))
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._waiting:
            # Everything that can run now runs first: the wave is complete when a whole pass of the loop adds nothing to it.
            seen = -1
            while seen != len(self._waiting):
                seen = len(self._waiting)
                for _ in range(3):  # a partner's answer, the game's step and the next request take a pass each
                    await asyncio.sleep(0)
            wave = sorted(self._waiting, key=lambda request: request.key)
            self._waiting = []
            for start in range(0, len(wave), self.max_batch):
                await self._sample_batch(wave[start : start + self.max_batch])

    async def _sample_batch(self, batch: list[_Request]) -> None:
        live = [request for request in batch if not request.future.done()]
        if not live:
            return
        try:
            # In a thread, so that other dialogues' network partners are served meanwhile.
            results = await asyncio.get_running_loop().run_in_executor(None, self._generate, live)
        except Exception as error:
            for request in live:
                if not request.future.done():
                    request.future.set_exception(PolicyFailure(f"{type(error).__name__}: {error}"))
            return
        for request, sampled in zip(live, results, strict=True):
            if not request.future.done():
                request.future.set_result(sampled)

    @torch.no_grad()  # grad mode belongs to the thread, so it is set here and not by the caller
    def _generate(self, batch: list[_Request]) -> list[Sampled]:
        device = self.model.device
        budget = max(request.max_tokens for request in batch)
        known = [self.turns.take(request.key, request.input_ids) if self.turns else None for request in batch]
        cache, lengths = batched(known)
        ids, mask = self._padded(batch, lengths)
        longest = ids.shape[1]
        draw = _Draw([seed_of(self._seed, request.key, len(request.input_ids)) for request in batch])
        processors: list[LogitsProcessor] = []
        if self.temperature != 1.0:
            processors.append(TemperatureLogitsWarper(self.temperature))
        if self.top_p != 1.0:
            processors.append(TopPLogitsWarper(self.top_p))
        was_training, defaults = self.model.training, self.model.generation_config
        self.model.eval()
        # A checkpoint may bring its own sampling settings (Qwen2.5 a repetition penalty), which training does not know.
        self.model.generation_config = GenerationConfig()
        try:
            output = self.model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                logits_processor=LogitsProcessorList([*processors, draw]),
                max_new_tokens=budget,
                eos_token_id=self.stop_ids,
                pad_token_id=self.pad_id,
                do_sample=False,  # `draw` has drawn: it leaves one token to choose
                use_cache=True,
                past_key_values=cache,
                return_dict_in_generate=True,
            )
        finally:
            self.model.train(was_training)
            self.model.generation_config = defaults
        sampled = output.sequences[:, longest:].cpu()
        logprobs = draw.logprobs().cpu()
        turns = [self._cut(sampled[row], logprobs[row], request) for row, request in enumerate(batch)]
        self._keep(batch, turns, mask, output.past_key_values)
        return turns

    def _padded(self, batch: list[_Request], known: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The inputs and their mask, each (rows, tokens): what is known of each row, padded on the left, and then what is new."""
        past = max(known)
        new = max(len(request.input_ids) - length for request, length in zip(batch, known, strict=True))
        ids = torch.full((len(batch), past + new), self.pad_id, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, (request, length) in enumerate(zip(batch, known, strict=True)):
            for end, part in ((past, request.input_ids[:length]), (past + new, request.input_ids[length:])):
                ids[row, end - len(part) : end] = torch.tensor(part, dtype=torch.long)
                mask[row, end - len(part) : end] = 1
        return ids, mask

    def _keep(self, batch: list[_Request], turns: list[Sampled], mask: torch.Tensor, cache: Any) -> None:
        """Keeps what was computed: the input, and of the turn all but the last token, which no step has read yet."""
        if self.turns is None:
            return
        read = cache.get_seq_length() - mask.shape[1]
        steps = torch.arange(read)
        lengths = torch.tensor([[len(turn.ids) - 1] for turn in turns])
        states = unbatched(cache, torch.cat((mask.bool(), steps < lengths), dim=1))
        for request, turn, state in zip(batch, turns, states, strict=True):
            self.turns.keep(request.key, request.input_ids + turn.ids[:-1], state)

    def _cut(self, ids: torch.Tensor, logprobs: torch.Tensor, request: _Request) -> Sampled:
        """One row up to its first stop token, or its own token limit."""
        row = ids.tolist()
        end = next((index + 1 for index, token in enumerate(row) if token in self.stop_ids), None)
        stopped = end is not None and end <= request.max_tokens
        length = end if end is not None and stopped else min(len(row), request.max_tokens)
        self.tokens_sampled += length
        return Sampled(row[:length], logprobs[:length].tolist(), "stop" if stopped else "length")


class _Draw(LogitsProcessor):
    """Draws each row's next token by its own random stream, and keeps the token's logprob."""

    def __init__(self, seeds: list[int]) -> None:
        self._streams = [random.Random(seed) for seed in seeds]
        self._logprobs: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        logprobs = scores.float().log_softmax(-1)
        cumulated = logprobs.exp().cumsum(-1)
        shares = torch.tensor([[stream.random()] for stream in self._streams], device=scores.device)
        # Relative to the computed sum: it may fall short of 1, and a token of no probability must not be drawn.
        drawn = torch.searchsorted(cumulated, shares * cumulated[:, -1:], right=True)
        drawn = torch.minimum(drawn, cumulated.argmax(-1, keepdim=True))
        self._logprobs.append(logprobs.gather(1, drawn).squeeze(1))
        return torch.full_like(scores, -torch.inf).scatter(1, drawn, 0.0)

    def logprobs(self) -> torch.Tensor:
        """Shape (batch, sampled steps)."""
        return torch.stack(self._logprobs, dim=1)


def load_model(config: PolicyConfig) -> tuple[PreTrainedModel, Any]:
    """The model and tokenizer of `config.model` (a folder or hub name). Raises ConfigError if they cannot be loaded."""
    check_model_name(config.model)
    dtype = getattr(torch, config.dtype)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    _hide_bars()
    try:
        tokenizer = AutoTokenizer.from_pretrained(config.model)
        model = AutoModelForCausalLM.from_pretrained(config.model, dtype=dtype)
    except (ImportError, torch.OutOfMemoryError):
        raise
    except (
        Exception
    ) as error:  # an odd file in the folder can be any error: a TypeError, a RecursionError, safetensors' own
        where = "folder" if Path(config.model).exists() else "reachable hub name"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"policy.model '{config.model}' is not a {where} with a model and tokenizer: {reason}"
        ) from error
    return model.to(device), tokenizer


def _hide_bars() -> None:
    """No bars for reading and writing weights, which come again with every checkpoint; those of downloads stay."""
    downloads_hidden = are_progress_bars_disabled()
    logging.disable_progress_bar()
    if not downloads_hidden:
        enable_progress_bars()


def load_policy(config: PolicyConfig) -> tuple[TransformersPolicy, Chat]:
    """The policy that samples as `config` says, and its token boundaries. Raises ConfigError, as `load_model` and `Chat` do."""
    model, tokenizer = load_model(config)
    chat = Chat(tokenizer, config.thinking)
    policy = TransformersPolicy(
        model,
        chat.stop_ids,
        pad_id=tokenizer.pad_token_id or 0,
        temperature=config.temperature,
        top_p=config.top_p,
        name=config.model,
    )
    return policy, chat


def save_model(model: PreTrainedModel, tokenizer: Any, folder: Path, card: str = "") -> None:
    """Writes a model, its adapters merged, and its tokenizer to a folder, which appears whole and replaces the model that was there.

    Args:
        card: what its README.md is to say.

    Raises:
        DataError: the folder holds other things than a model, or the disk would not take it.
    """
    check_model_folder(folder)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    with disk_errors("model", folder), replacing_folder(folder) as scratch:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        if card:
            (scratch / "README.md").write_text(card, encoding="utf-8")


def check_model_folder(folder: Path) -> None:
    """Raises DataError unless `folder` is free for a model: not there, empty, or a model already, which may be replaced."""
    try:
        if not folder.exists() or not any(folder.iterdir()):
            return
        described = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        described = None
    if not isinstance(described, dict) or "model_type" not in described:
        raise DataError(f"{folder} exists and is not a model's folder; name another, so that nothing in it is lost.")
