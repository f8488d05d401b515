"""In-process policy: a transformers model that samples for all waiting dialogues at once.

Invariants:
    A token's logprob is under the distribution it was drawn from (temperature and top-p applied).
    A turn depends on the seed, the dialogue's key and the turn's position alone: not on the order of arrival, nor (except for rounding)
    on the rest of the batch.

A dialogue that reaches its turn waits until no other dialogue can continue without the model; then all that wait join the batch. When a
quarter of the batch has ended its turn, or more dialogues wait than run, ended rows leave and waiting ones join: a short turn does not wait
for a long one, nor many for a few.
"""

import asyncio
import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from slim_rl import bundled
from slim_rl.config import PolicyConfig
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.players import Policy, PolicyFailure, Sampled
from slim_rl.dialogue.record import StopReason
from slim_rl.errors import Diverged, SlimWarning
from slim_rl.files import disk_errors, replacing_folder
from slim_rl.policies import check_model_folder, check_model_name, unreadable
from slim_rl.policies.batching.attention import share_keys
from slim_rl.policies.batching.decoding import Decoder, Row
from slim_rl.policies.batching.top_p import top_p
from slim_rl.policies.batching.turn_cache import TurnCache
from slim_rl.seeds import seed_of


@dataclass(slots=True)
class _Request:
    key: str
    row: Row
    future: asyncio.Future[Sampled]


class TransformersPolicy(Policy):
    """Policy that samples from a causal language model in this process.

    Args:
        model: causal language model; each batch uses its present weights, so a trainer may change them in between.
        stop_ids: tokens that end a turn (`Chat.stop_ids`).
        pad_id: any id; padding is masked.
        max_batch: largest number of dialogues in one forward pass; the others wait.
        cache_bytes: memory for the keys and values of earlier turns; 0: every turn computes its whole input.

    Attributes:
        max_context: positions of the model; a longer input ends its dialogue, not the batch. None: its config has no limit.
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
        text = model.config.get_text_config(decoder=True)  # a model that reads images too has one config for each
        positions = getattr(text, "max_position_embeddings", None)
        self.max_context = None if positions is None else int(positions)
        self.tokens_sampled = 0
        self._mixes = TurnCache.suits(model)
        self.turns = TurnCache(cache_bytes) if cache_bytes and self._mixes else None
        self._seed = 0
        self._waiting: list[_Request] = []
        self._room = 0  # more dialogues that the running batch could take
        self._sampling: asyncio.Task[None] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        return {"engine": "transformers", "model": self.name, "temperature": self.temperature, "top_p": self.top_p}

    def reseed(self, seed: int) -> None:
        """Sets the seed of the turns that follow, and drops what old weights computed."""
        self._seed = seed
        if self.turns is not None:
            self.turns.clear()

    async def sample(self, input_ids: list[int], max_tokens: int, key: str) -> Sampled:
        """See `dialogue.players.Policy`. Raises PolicyFailure if the input leaves no room in the model's context."""
        room = max_tokens if self.max_context is None else self.max_context - len(input_ids)
        if room <= 0:
            raise PolicyFailure(
                f"the input has {len(input_ids)} tokens but the model has {self.max_context} positions",
                StopReason.CONTEXT_LENGTH,
            )
        row = Row(list(input_ids), min(max_tokens, room), random.Random(seed_of(self._seed, key, len(input_ids))))
        request = _Request(key, row, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._sampling is None or self._sampling.done():
            self._sampling = asyncio.create_task(self._run())
        return await request.future

    async def _run(self) -> None:
        """Samples until no dialogue waits."""
        live: list[_Request] = []
        decoder = Decoder(
            self.model, self.stop_ids, self.pad_id, self._draw, self._mixes, lambda: min(len(self._waiting), self._room)
        )
        while live or self._waiting:
            # Everything that can run now runs first: all are here when a pass of the loop adds none.
            seen = -1
            while seen != len(self._waiting):
                seen = len(self._waiting)
                for _ in range(3):  # a partner's answer, the game's step and the next request take a pass each
                    await asyncio.sleep(0)
            live = [request for request in live if not request.future.done()]
            waiting = sorted((each for each in self._waiting if not each.future.done()), key=lambda each: each.key)
            room = self.max_batch - len(live) if self._mixes or not live else 0
            joining, self._waiting = waiting[:room], waiting[room:]
            self._room = room - len(joining)
            if live or joining:
                live = await self._sample_some(decoder, live, joining)

    async def _sample_some(self, decoder: Decoder, live: list[_Request], joining: list[_Request]) -> list[_Request]:
        """Samples until some turns have ended, and delivers these. Returns the others; none if that raises, and all fail."""
        requests = [*live, *joining]

        def run() -> None:
            was_training = self.model.training
            self.model.eval()
            try:
                if self.turns is not None:
                    for request in joining:
                        request.row.states = self.turns.take(request.key, request.row.input_ids)
                decoder.decode([request.row for request in live], [request.row for request in joining])
            finally:
                self.model.train(was_training)

        try:
            # In a thread, so that other dialogues' network partners are served meanwhile.
            await asyncio.get_running_loop().run_in_executor(None, run)
        except Exception as error:
            failed = error if isinstance(error, Diverged) else PolicyFailure(f"{type(error).__name__}: {error}")
            for request in requests:
                if not request.future.done():
                    request.future.set_exception(failed)
            return []
        for request in requests:
            if request.row.ended and not request.future.done():
                request.future.set_result(self._ended(request))
        return [request for request in requests if not request.row.ended]

    def _draw(self, logits: torch.Tensor, streams: Sequence[random.Random]) -> tuple[torch.Tensor, torch.Tensor]:
        """See `decoding.Draw`."""
        # Sampling settings of the checkpoint (Qwen2.5: a repetition penalty) are unknown to training: only these count.
        if self.temperature != 1.0:
            logits = logits / self.temperature
        if self.top_p != 1.0:
            logits = top_p(logits, self.top_p)
        logprobs = logits.log_softmax(-1)
        cumulated = logprobs.exp().cumsum(-1)
        shares = torch.tensor([[stream.random()] for stream in streams], device=logits.device)
        # Relative to the computed sum: it may fall short of 1, and a token of no probability must not be drawn.
        drawn = torch.searchsorted(cumulated, shares * cumulated[:, -1:], right=True)
        drawn = torch.minimum(drawn, cumulated.argmax(-1, keepdim=True))
        return drawn.squeeze(1), logprobs.gather(1, drawn).squeeze(1)

    def _ended(self, request: _Request) -> Sampled:
        """Returns an ended turn, and caches its states (of all tokens except the last) for the dialogue's next turn."""
        row = request.row
        self.tokens_sampled += len(row.ids)
        if self.turns is not None and row.states is not None:
            self.turns.keep(request.key, row.input_ids + row.ids[:-1], row.states)
        return Sampled(row.ids, row.logprobs, "stop" if row.ids[-1] in self.stop_ids else "length")


def load_model(config: PolicyConfig) -> tuple[PreTrainedModel, Any]:
    """Returns the model and tokenizer of `config.model` (a folder or hub name). Raises ConfigError if they cannot be loaded."""
    name = bundled.model(config.model)
    check_model_name(name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, config.dtype)
    if dtype is torch.bfloat16 and device == "cpu" and not _computes_bfloat16():
        warnings.warn(
            "policy.dtype=bfloat16, but this processor has no instructions for it; the weights are float32.",
            SlimWarning,
            stacklevel=2,
        )
        dtype = torch.float32
    _hide_bars()
    where = "folder" if Path(name).exists() else "reachable hub name"
    refused = f"policy.model '{config.model}' is not a {where} with a model and tokenizer"
    with unreadable(refused, torch.OutOfMemoryError):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, trust_remote_code=False)
    for module in model.modules():
        # padding is masked, and where it is a turn's end too that token is to learn
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    if device == "cuda":
        # With a mask its gradients are NaN at some lengths on H100 and H200, from torch 2.11 on (pytorch issue 196678).
        torch.backends.cuda.enable_cudnn_sdp(False)
    model = model.to(device)
    share_keys(model)
    # torch copies a frozen weight for every row of an input that is not contiguous, as hidden states of a turn's last tokens are.
    model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(),))
    return model, tokenizer


def _computes_bfloat16() -> bool:
    """Returns True if the processor multiplies in bfloat16; elsewhere it is emulated, and slower than float32."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def _hide_bars() -> None:
    """Hides the progress bars of weights, which come with every checkpoint; those of downloads stay."""
    downloads_hidden = are_progress_bars_disabled()
    logging.disable_progress_bar()
    if not downloads_hidden:
        enable_progress_bars()


def load_policy(config: PolicyConfig) -> tuple[TransformersPolicy, Chat]:
    """Returns the policy of `config` and its token boundaries. Raises ConfigError, as `load_model` and `Chat` do."""
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
    """Writes a model with merged adapters and its tokenizer to a folder, atomically; an earlier model is replaced.

    Args:
        card: text of its README.md; "" for none.

    Raises:
        DataError: the folder holds something else than a model, or the disk refused it.
    """
    check_model_folder(folder)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    with disk_errors("model", folder), replacing_folder(folder) as scratch:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        if card:
            (scratch / "README.md").write_text(card, encoding="utf-8")
