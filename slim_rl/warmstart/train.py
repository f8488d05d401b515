"""Makes the starting point of a local run: tokenizer, model, demonstrations, supervised training, one folder at the end.

    slim-rl warmstart configs/matching_local.yaml

Only the scripted player's own words are learned (labels elsewhere are -100). It thinks before it proposes: the thought is its table
with what it was told filled in, which a model this small can plan from. Of the lessons, games in which much is seen, asked or told, all
is learned but for the first token of the game, which decides whether to ask at all: they teach how to ask, when to stop and how to use
answers, while how often it asks is taught by the other demonstrations alone.

The demonstration games are dealt from a separate seed and are in neither split of the run's data.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tqdm import tqdm
from transformers import DataCollatorForSeq2Seq, Qwen3Config, Qwen3ForCausalLM, Trainer, TrainingArguments

from slim_rl.config import Config, Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.loop import Demonstrator
from slim_rl.dialogue.partner import Partner
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import Episode, RolloutWorker
from slim_rl.errors import ConfigError
from slim_rl.games.matching.demonstrations import QuestioningPlayer
from slim_rl.games.matching.generate import VALUES, generate_games, roster_for
from slim_rl.games.matching.instance import UNSEEN_VALUE, GameState
from slim_rl.games.matching.optimum import best_assignment
from slim_rl.policies import check_model_folder
from slim_rl.policies.transformers import load_model, save_model
from slim_rl.seeds import seed_of
from slim_rl.warmstart.optimizer import MuonWithAdamW
from slim_rl.warmstart.tokenizer import train_tokenizer


def warmstart(config: Config, output: Path, workers: int = 1) -> Path:
    """Trains the model of `config.warmstart` on demonstrations of `config.game` and writes it, tokenizer included, to `output`.

    The folder appears whole or not at all. Returns it. Raises DataError if `output` holds other things than a model, which this one
    would replace, or the disk is full; ConfigError if a limit is too narrow for the demonstrations.
    """
    check_model_folder(output)
    settings = config.warmstart
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.train.threads)
    with tempfile.TemporaryDirectory() as scratch:  # wanted by the trainer, which keeps nothing there
        arguments = TrainingArguments(
            output_dir=scratch,
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.batch_size,
            lr_scheduler_type="cosine",
            warmup_steps=50,
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            seed=config.seed,
            use_cpu=not torch.cuda.is_available(),
            train_sampling_strategy="group_by_length",
            dataloader_pin_memory=False,
            ddp_find_unused_parameters=False,
        )
        number = settings.games + settings.lessons.get("asked", 0) + settings.lessons.get("told", 0)
        games = list(_shown(_fresh_games(config, number, workers), number, "dealing"))
        if settings.start:
            model, tokenizer = load_model(config.policy.changed(model=settings.start))
        else:
            tokenizer = train_tokenizer(_texts(config, games[: settings.tokenizer_games]), settings.vocab_size)
            model = tiny_qwen3(len(tokenizer), settings.hidden_size, settings.layers, tokenizer)
        chat = Chat(tokenizer)
        rows = list(
            _shown(_rows_to_learn(config, games, chat), settings.games + sum(settings.lessons.values()), "playing")
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
            optimizers=(MuonWithAdamW(model, settings.learning_rate), None),
        )
        trainer.train()
        if trainer.is_world_process_zero():
            # Half the size on disk; a run loads it as float32 again.
            save_model(trainer.accelerator.unwrap_model(trainer.model).to(torch.bfloat16), tokenizer, output)
    return output


def tiny_qwen3(vocab: int, hidden: int, layers: int, tokenizer: Any) -> Qwen3ForCausalLM:
    """A Qwen3 of the given width and depth, randomly initialised."""
    config = Qwen3Config(
        vocab_size=(vocab + 63) // 64 * 64,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=max(1, hidden // 64),
        head_dim=32,
        max_position_embeddings=1024,
        rope_theta=10_000.0,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def _fresh_games(config: Config, number: int, workers: int) -> Iterator[GameState]:
    """Games that neither split of the run's data holds."""
    taken = {row.game_id for row in load_rows(config, "train") + load_rows(config, "eval")}
    dealt = generate_games(number + len(taken), config.game, seed_of(config.seed, "warmstart"), workers=workers)
    return itertools.islice((game for game in dealt if game.id not in taken), number)


def _rows_to_learn(config: Config, games: Sequence[GameState], chat: Chat) -> Iterator[dict[str, list[int]]]:
    """The demonstrations, and after them the lessons (`config.warmstart.lessons`), which do not teach whether to ask."""
    settings, left = config.warmstart, iter(games)
    usual = QuestioningPlayer(settings.messages)
    for dialogue in _demonstrations(config, itertools.islice(left, settings.games), chat, usual, settings.partners):
        yield _labels(_check_whole(dialogue, chat, config.limits))
    lessons: dict[str, tuple[QuestioningPlayer, str]] = {
        "seen": (QuestioningPlayer((1.0,)), "shy"),
        "asked": (QuestioningPlayer((0.0, *settings.messages[1:]), {"pair": 1.0}), "shy"),
        "told": (QuestioningPlayer((0.0, 1.0)), "forthcoming"),
    }
    for name, number in settings.lessons.items():
        player, partner = lessons[name]
        dealt = _tables(config, number) if name == "seen" else itertools.islice(left, number)
        for dialogue in _demonstrations(config, dealt, chat, player, {partner: 1.0}):
            yield _labels(_check_whole(dialogue, chat, config.limits), opening=False)


def _tables(config: Config, number: int) -> Iterator[GameState]:
    """Random tables, however hard, of which the seat sees a share between 0.2 and 1, and the partner nothing."""
    rng, n = np.random.default_rng(seed_of(config.seed, "tables")), config.game.n
    for _ in range(number):
        own = rng.random((n, n)) < rng.uniform(0.2, 1.0)
        table = np.where(own, rng.integers(0, VALUES, (n, n)), UNSEEN_VALUE)
        best = int(best_assignment(table)[1])
        yield GameState(_rows(table), _rows(own), _rows(np.zeros_like(own)), 1.0, 1.0, best, roster_for(config.game))


def _rows(array: np.ndarray) -> tuple[tuple[Any, ...], ...]:
    return tuple(map(tuple, array.tolist()))


def _demonstrations(
    config: Config, games: Iterable[GameState], chat: Chat, questioner: QuestioningPlayer, weights: Mapping[Any, float]
) -> Iterator[Dialogue]:
    """Games with partners of the kinds that `weights` names. With several kinds, the model has already met the partner
    of a control arm."""
    whole = config.changed(limits={"truncated_turn": "end"})  # half a turn teaches nothing
    workers = {kind: RolloutWorker(whole.changed(partner={"kind": kind}), chat) for kind in weights}

    async def play(index: int, game: GameState) -> Dialogue:
        kind = random.Random(index).choices(list(weights), list(weights.values()))[0]
        worker, seat = workers[kind], index % 2 if config.warmstart.both_seats else 0
        player: Partner = questioner
        opposite = worker.partner
        if seat == 1:  # the partner's seat is taught
            assert worker.partner is not None
            player, opposite = worker.partner, questioner
        row = GameRow(game.id, seat, game.to_dict(), [])
        episode = Episode(row, f"demonstration/{index}", seed_of(config.seed, "demonstration", index), "demonstration")
        (dialogue,) = await worker.play(episode, policy=Demonstrator(player), partner=opposite)
        return dialogue

    async def play_some(some: list[tuple[int, GameState]]) -> list[Dialogue]:
        return [await play(index, game) for index, game in some]

    numbered = iter(enumerate(games))
    while some := list(itertools.islice(numbered, 1000)):
        yield from asyncio.run(play_some(some))


_CUTS = {  # how a demonstration may end too early -> the limit that does it
    StopReason.TURN_TOKENS: "turn_tokens",
    StopReason.DIALOGUE_TOKENS: "dialogue_tokens",
    StopReason.CONTEXT_LENGTH: "context_tokens",
}


def _check_whole(dialogue: Dialogue, chat: Chat, limits: Limits) -> Dialogue:
    """The demonstration. Raises ConfigError if a limit cut it: what is left would be taught as if it were all."""
    key = _CUTS.get(dialogue.stop_reason or StopReason.AGREED)
    if key is None:
        return dialogue
    last = dialogue.turns[-1]
    longer = f", by a turn of {len(chat.said_ids(last.text, last.thought))} tokens" if key == "turn_tokens" else ""
    raise ConfigError(
        f"A demonstration is cut at limits.{key} = {getattr(limits, key)}{longer}, with this tokenizer; raise the limit "
        f"(--set limits.{key}=...): otherwise the cut text would be taught as if it were complete."
    )


def _labels(dialogue: Dialogue, opening: bool = True) -> dict[str, list[int]]:
    """What the trainer reads. Without `opening` the player's first token is not learned: it decides whether to speak or to propose."""
    learned = list(dialogue.loss_mask)
    if not opening:
        learned[learned.index(1)] = 0
    spoken = zip(dialogue.response_ids, learned, strict=True)
    return {
        "input_ids": dialogue.prompt_ids + dialogue.response_ids,
        "labels": [-100] * len(dialogue.prompt_ids) + [token if learn else -100 for token, learn in spoken],
        "attention_mask": [1] * (len(dialogue.prompt_ids) + len(dialogue.response_ids)),
    }


def _shown(items: Iterable[Any], total: int, what: str) -> Iterator[Any]:
    return iter(tqdm(items, total=total, desc=what, unit="game", disable=None))


def _texts(config: Config, games: Iterable[GameState]) -> Iterator[str]:
    """What the tokenizer is trained on: the games' own texts, every number a score can be, and each name."""
    stand_in = Chat(train_tokenizer(["stand-in"], 300))
    controls = re.compile("|".join(map(re.escape, stand_in.tokenizer.get_added_vocab())))
    for dialogue in _demonstrations(config, games, stand_in, QuestioningPlayer(), config.warmstart.partners):
        yield from controls.split(stand_in.tokenizer.decode(dialogue.prompt_ids + dialogue.response_ids))
        yield from (turn.error for turn in dialogue.turns if turn.error)
    # Every number and every role, so that each is one token.
    yield from (f" {number}" for number in range(100) for _ in range(50))
    yield from (f"{role}\n" for role in ("system", "user", "assistant") for _ in range(500))
