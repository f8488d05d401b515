"""Makes the starting point of a local run: tokenizer, model, demonstrations, supervised training, one folder at the end.

    slim-rl warmstart configs/matching_local.yaml

Only the scripted player's own words are learned (labels elsewhere are -100). The demonstration games are dealt from a separate
seed and are in neither split of the run's data. The model also is given lessons, on easier tables, that teach it to plan with
what it sees, what it asks for and what it is told.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tqdm import tqdm
from transformers import DataCollatorForSeq2Seq, Qwen3Config, Qwen3ForCausalLM, Trainer, TrainingArguments

from slim_rl.config import Config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.loop import Demonstrator
from slim_rl.dialogue.partner import Partner
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import Episode, RolloutWorker
from slim_rl.games.matching.demonstrations import QuestioningPlayer
from slim_rl.games.matching.generate import VALUES, generate_games, roster_for
from slim_rl.games.matching.instance import UNSEEN_VALUE, GameState
from slim_rl.games.matching.optimum import best_assignment
from slim_rl.policies.transformers import check_model_folder, load_model, save_model
from slim_rl.seeds import seed_of
from slim_rl.warmstart.tokenizer import train_tokenizer


def warmstart(config: Config, output: Path, workers: int = 1) -> Path:
    """Trains the model of `config.warmstart` on demonstrations of `config.game` and writes it, tokenizer included, to `output`.

    The folder appears whole or not at all. Returns it. Raises DataError if `output` holds other things than a model, which this one
    would replace, or the disk is full.
    """
    check_model_folder(output)
    settings = config.warmstart
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.train.threads)
    fresh = _fresh_games(config, settings.games, workers)
    games = list(tqdm(fresh, total=settings.games, desc="dealing", unit="game", disable=None))
    if settings.start:
        model, tokenizer = load_model(config.policy.model_copy(update={"model": settings.start}))
    else:
        tokenizer = train_tokenizer(_texts(config, games[: settings.tokenizer_games]), settings.vocab_size)
        model = None
    chat = Chat(tokenizer)
    played = _demonstrations(config, games, chat, QuestioningPlayer(), settings.partners)
    demonstrated = tqdm(
        itertools.chain(played, _lessons(config, chat)),
        total=settings.games + sum(settings.lessons.values()),
        desc="demonstrations",
        unit="game",
        disable=None,
    )
    rows = [_labels(dialogue) for dialogue in demonstrated]
    longest = max(len(row["input_ids"]) for row in rows)
    if model is None:
        model = tiny_qwen3(len(tokenizer), settings.hidden_size, settings.layers, tokenizer, 2 * longest)
    with tempfile.TemporaryDirectory() as scratch:  # wanted by the trainer, which keeps nothing there
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=scratch,
                num_train_epochs=settings.epochs,
                per_device_train_batch_size=settings.batch_size,
                learning_rate=settings.learning_rate,
                lr_scheduler_type="cosine",
                warmup_steps=0.05,  # of all steps
                weight_decay=0.01,
                adam_beta2=0.98,
                logging_steps=50,
                save_strategy="no",
                report_to="none",
                seed=config.seed,
                use_cpu=not torch.cuda.is_available(),
                train_sampling_strategy="group_by_length",
                dataloader_pin_memory=False,
            ),
            train_dataset=Dataset.from_list(rows),
            data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        )
        trainer.train()
    # Half the size on disk; a run loads it as float32 again.
    save_model(model.to(torch.bfloat16), tokenizer, output)
    return output


def tiny_qwen3(vocab: int, hidden: int, layers: int, tokenizer: Any, positions: int) -> Qwen3ForCausalLM:
    """A Qwen3 of the given width and depth, randomly initialised."""
    config = Qwen3Config(
        vocab_size=(vocab + 63) // 64 * 64,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=max(1, hidden // 64),
        head_dim=32,
        max_position_embeddings=max(1024, positions),
        rope_theta=10_000.0,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def _fresh_games(config: Config, number: int, workers: int) -> Iterator[GameState]:
    """Games that neither split of the run's data holds."""
    taken = {row.game_id for row in load_rows(config, "train")}
    if config.data.eval is not None and config.data.num_eval:
        taken |= {row.game_id for row in load_rows(config, "eval")}
    dealt = generate_games(number + len(taken), config.game, seed_of(config.seed, "warmstart"), workers=workers)
    return itertools.islice((game for game in dealt if game.id not in taken), number)


def _lessons(config: Config, chat: Chat) -> Iterator[Dialogue]:
    """Games on separate random tables, which teach planning from what is seen, asked and told (`config.warmstart.lessons`)."""
    curious = QuestioningPlayer(messages=(0.0, 0.4, 0.3, 0.2, 0.1), kinds={"pair": 1.0})
    lessons = {
        "seen": (QuestioningPlayer(messages=(1.0,)), "shy", (0.3, 1.0), (0.0, 0.0)),
        "asked": (curious, "shy", (0.1, 0.7), (1.0, 1.0)),
        "told": (QuestioningPlayer(messages=(0.0, 1.0)), "forthcoming", (0.0, 0.6), (0.3, 1.0)),
    }
    for name, number in config.warmstart.lessons.items():
        questioner, partner, sees, partner_sees = lessons[name]
        yield from _demonstrations(
            config, _tables(config, name, number, sees, partner_sees), chat, questioner, {partner: 1}
        )


def _tables(
    config: Config, name: str, number: int, sees: tuple[float, float], partner_sees: tuple[float, float]
) -> Iterator[GameState]:
    """Random tables, however hard; each seat sees a share of the cells drawn from its range."""
    rng, n = np.random.default_rng(seed_of(config.seed, name)), config.game.n
    for _ in range(number):
        own, other = (rng.random((n, n)) < rng.uniform(*share) for share in (sees, partner_sees))
        table = np.where(own | other, rng.integers(0, VALUES, (n, n)), UNSEEN_VALUE)
        best = int(best_assignment(table)[1])
        yield GameState(_rows(table), _rows(own), _rows(other), 1.0, 1.0, best, roster_for(config.game))


def _rows(array: np.ndarray) -> tuple[tuple[Any, ...], ...]:
    return tuple(map(tuple, array.tolist()))


def _demonstrations(
    config: Config, games: Iterable[GameState], chat: Chat, questioner: QuestioningPlayer, weights: Mapping[Any, float]
) -> Iterator[Dialogue]:
    """Games with partners of the kinds that `weights` names. With several kinds, the model has already met the partner
    of a control arm."""
    workers = {kind: RolloutWorker(_with_partner(config, kind), chat) for kind in weights}

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


def _with_partner(config: Config, kind: str) -> Config:
    return config.model_copy(update={"partner": config.partner.model_copy(update={"kind": kind})})


def _labels(dialogue: Dialogue) -> dict[str, list[int]]:
    spoken = zip(dialogue.response_ids, dialogue.loss_mask, strict=True)
    return {
        "input_ids": dialogue.prompt_ids + dialogue.response_ids,
        "labels": [-100] * len(dialogue.prompt_ids) + [token if mask else -100 for token, mask in spoken],
        "attention_mask": [1] * (len(dialogue.prompt_ids) + len(dialogue.response_ids)),
    }


def _texts(config: Config, games: Iterable[GameState]) -> Iterator[str]:
    """What the tokenizer is trained on: the games' own texts, every number a score can be, and each name."""
    stand_in = Chat(train_tokenizer(["stand-in"], 300))
    for dialogue in _demonstrations(config, games, stand_in, QuestioningPlayer(), config.warmstart.partners):
        yield from (message["content"] for message in dialogue.prompt)
        yield from (turn.text for turn in dialogue.turns)
        yield from (turn.error for turn in dialogue.turns if turn.error)
    # Every digit and every role, so that each is one token.
    yield from (f" {number}" for number in range(100) for _ in range(50))
    yield from (role for role in ("system", "user", "assistant") for _ in range(500))
