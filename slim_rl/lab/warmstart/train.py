"""Warm start: trains a tokenizer and a model on demonstrations, and writes them to one folder.

    slim-rl lab warmstart configs/matching_local.yaml

The game defines the demonstrations (`Instrument.curriculum`). Only the scripted player's tokens, including its thoughts, are
trained; all other labels are -100. In lessons with `opening=False`, the game's first token (which decides whether to ask at all) is masked
out of the loss, so that only the demonstrations determine how often the model asks.

Demonstration games have a separate seed and are in neither split of the run's data.
"""

import asyncio
import itertools
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import get_peft_model
from tqdm import tqdm
from transformers import DataCollatorForSeq2Seq, Qwen3Config, Qwen3ForCausalLM, TrainingArguments

from slim_rl.backends.trl.finite import FiniteSteps
from slim_rl.backends.trl.scoring import add_scoring, suits
from slim_rl.config import Config, Limits, read_yaml
from slim_rl.config.sections import WarmstartConfig
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import GameRow, load_rows
from slim_rl.dialogue.record import TRUNCATED, Dialogue
from slim_rl.dialogue.worker import DialogueSpec, RolloutWorker
from slim_rl.environment import as_dict, environment_class
from slim_rl.errors import ConfigError, Diverged
from slim_rl.lab.warmstart.batches import ScoringTrainer, in_random_order, scored_batch
from slim_rl.lab.warmstart.optimizer import MuonWithAdamW
from slim_rl.lab.warmstart.tokenizer import train_tokenizer
from slim_rl.measured import Curriculum, Lesson, measured
from slim_rl.policies import check_model_folder
from slim_rl.policies.lora import check_adapters, lora_config
from slim_rl.policies.transformers import load_model, save_model
from slim_rl.ranks import run_size
from slim_rl.seeds import seed_of

_WARMUP_STEPS, _WARMUP_SHARE = 50, 0.1
_FIXED: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_name("fixed.yaml"))
Dealt = tuple[str, Any]  # id and state of a game


def warmstart(config: Config, output: Path, workers: int = 1) -> Path:
    """Trains the model of `config.warmstart` on demonstrations, writes it with its tokenizer to `output`, and returns `output`.

    The folder is written atomically.

    Raises:
        DataError: `output` holds other files than a model, or the disk is full.
        ConfigError: the game has no demonstrations, or a limit cuts them.
        Diverged: a loss, a gradient or a weight is not a finite number; nothing is written.
    """
    check_model_folder(output)
    settings, curriculum, processes = config.warmstart, _curriculum(config), run_size()
    if settings.batch_size % processes:
        raise ConfigError(
            f"warmstart.batch_size={settings.batch_size} does not divide among {processes} processes; choose one that does."
        )
    lessons, adapters = _lessons(config, curriculum), config.train.lora if settings.start else None
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.train.threads)
    with tempfile.TemporaryDirectory() as scratch:  # the trainer needs a folder, but writes nothing
        arguments = TrainingArguments(
            output_dir=scratch,
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.batch_size // processes,
            warmup_steps=_warmup_steps(settings, sum(count for _, count in lessons)),
            lr_scheduler_type="cosine" if adapters else "constant",
            seed=config.seed,
            use_cpu=not torch.cuda.is_available(),
            train_sampling_strategy="group_by_length" if settings.order == "length" else "sequential",
            **_FIXED["trainer"],
        )
        if settings.start:
            model, tokenizer = load_model(config.policy.changed(model=settings.start))
            if adapters:
                check_adapters(model, adapters.target_modules)
        number = sum(-(-count // settings.group_size) for lesson, count in lessons if lesson.deals is None)
        games = list(_shown(_fresh_games(config, number, workers), number, "dealing"))
        if not settings.start:
            tokenizer = train_tokenizer(
                _texts(config, curriculum, games[: settings.tokenizer_games]), settings.vocab_size
            )
            model = tiny_qwen3(settings, tokenizer)
        optimizer: torch.optim.Optimizer
        collate: Callable[[Any], Any] = DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100)
        kind = FiniteSteps
        if adapters:
            model = get_peft_model(model, lora_config(adapters))
            if suits(model.get_base_model()):
                add_scoring(model.get_base_model(), temperature=1.0)
                collate, kind = scored_batch, ScoringTrainer
            optimizer = torch.optim.AdamW(
                model.parameters(), settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.0
            )
        else:
            optimizer = MuonWithAdamW(model, settings.learning_rate)
        chat = Chat(tokenizer)
        total = sum(count for _, count in lessons)
        rows = list(_shown(_rows_to_learn(config, lessons, games, chat), total, "playing"))
        if settings.order == "random":
            rows = in_random_order(rows, config.seed)
        trainer = kind(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            data_collator=collate,
            optimizers=(optimizer, None),
        )
        try:
            trainer.train()
            trainer.check_finite()
        except Diverged as gone:
            raise Diverged(
                f"The warm start stops. {gone} Nothing of it is saved. Lower warmstart.learning_rate ({settings.learning_rate:g})."
            ) from None
        if trainer.is_world_process_zero():
            # Half the size on disk; runs load it as float32.
            save_model(trainer.accelerator.unwrap_model(trainer.model).to(torch.bfloat16), tokenizer, output)
    return output


def _warmup_steps(settings: WarmstartConfig, demonstrations: int) -> int:
    """Returns the steps over which the learning rate rises, by default a share of all steps that are trained."""
    if settings.warmup_steps is not None:
        return settings.warmup_steps
    steps = settings.epochs * demonstrations / settings.batch_size
    return min(_WARMUP_STEPS, math.ceil(_WARMUP_SHARE * steps))


def tiny_qwen3(settings: WarmstartConfig, tokenizer: Any) -> Qwen3ForCausalLM:
    """Returns a Qwen3 of the settings' width and depth with random weights."""
    hidden = settings.hidden_size
    config = Qwen3Config(
        vocab_size=(len(tokenizer) + 63) // 64 * 64,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=max(1, hidden // 64),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **_FIXED["model"],
    )
    return Qwen3ForCausalLM(config)


def _curriculum(config: Config) -> Curriculum:
    curriculum = measured(environment_class(config.environment)).curriculum(config)
    if curriculum is None:
        raise ConfigError(
            f"{config.environment} has no demonstrations. Give its instrument a curriculum(config), or begin with another model."
        )
    return curriculum


def _lessons(config: Config, curriculum: Curriculum) -> list[tuple[Lesson, int]]:
    """Returns the demonstrations and then the lessons, each with its number of games."""
    settings, lessons = config.warmstart, curriculum.lessons
    wanted = {name: lesson.games for name, lesson in lessons.items()} if settings.lessons is None else settings.lessons
    if unknown := [name for name in wanted if name not in lessons]:
        raise ConfigError(
            f"warmstart.lessons has {', '.join(unknown)}, which {config.environment} does not have. Choose from "
            f"{', '.join(lessons) or 'none'}."
        )
    return [(curriculum.demonstrations, settings.games), *((lessons[name], number) for name, number in wanted.items())]


def _fresh_games(config: Config, number: int, workers: int) -> Iterator[Dealt]:
    """Yields games that are in neither split of the run's data."""
    taken = {row.game_id for row in load_rows(config, "train") + load_rows(config, "eval")}
    game, seed = environment_class(config.environment), seed_of(config.seed, "warmstart")
    dealt = game.deal(config.game, seed, "train", range(number + len(taken)), workers)
    return itertools.islice((one for one in dealt if one[0] not in taken), number)


def _rows_to_learn(
    config: Config, lessons: Iterable[tuple[Lesson, int]], games: Iterable[Dealt], chat: Chat
) -> Iterator[dict[str, list[int]]]:
    left, group_size = iter(games), config.warmstart.group_size
    for lesson, number in lessons:
        groups = -(-number // group_size)
        dealt = itertools.islice(left, groups) if lesson.deals is None else lesson.deals(groups)
        repeated = itertools.islice((game for game in dealt for _ in range(group_size)), number)
        for dialogue in _demonstrations(config, repeated, chat, lesson):
            yield _labels(_check_complete(dialogue, chat, config.limits), lesson.opening)


def _demonstrations(config: Config, games: Iterable[Dealt], chat: Chat, lesson: Lesson) -> Iterator[Dialogue]:
    """Yields dialogues of the lesson's player with its partners."""
    # truncated turns are not demonstrations
    complete = config.changed(limits={"truncated_turn": "end"}, partner={"mixture": lesson.partners})
    worker = RolloutWorker(complete, chat, lesson.player)
    other = RolloutWorker(complete, chat, partner=lesson.player)  # the model plays the partner's seat

    async def play(index: int, dealt: Dealt) -> Dialogue:
        seat = index % 2 if config.warmstart.both_seats else 0
        row = GameRow(dealt[0], seat, as_dict(dealt[1]), [])
        spec = DialogueSpec(
            row, f"demonstration/{index}", seed_of(config.seed, "demonstration", index), "demonstration"
        )
        (dialogue,) = await (other.play(spec, policy=worker.partner_of(spec)) if seat else worker.play(spec))
        return dialogue

    async def play_some(some: list[tuple[int, Dealt]]) -> list[Dialogue]:
        return [await play(index, dealt) for index, dealt in some]

    numbered = iter(enumerate(games))
    while some := list(itertools.islice(numbered, 1000)):
        yield from asyncio.run(play_some(some))


def _check_complete(dialogue: Dialogue, chat: Chat, limits: Limits) -> Dialogue:
    """Returns the demonstration. Raises ConfigError if it failed, or a limit truncated it."""
    if dialogue.failed:
        raise ConfigError(
            f"A demonstration of the game {dialogue.game_id} failed ({dialogue.stop_reason}: {dialogue.failure}). Correct the game's player or "
            "its partner."
        )
    if dialogue.stop_reason in TRUNCATED:
        key, last = str(dialogue.stop_reason).replace("length", "tokens"), dialogue.turns[-1]
        raise ConfigError(
            f"A demonstration is cut at limits.{key}={getattr(limits, key)}, by a turn of {len(chat.said_ids(last.text, last.thought))} tokens "
            f"with this tokenizer. Raise the limit (--set limits.{key}=...)."
        )
    return dialogue


def _labels(dialogue: Dialogue, opening: bool = True) -> dict[str, list[int]]:
    """Returns the trainer's row; without `opening` the player's first token, which decides whether to ask, is masked out."""
    mask = list(dialogue.loss_mask)
    if not opening:
        mask[mask.index(1)] = 0
    response = zip(dialogue.response_ids, mask, strict=True)
    return {
        "input_ids": dialogue.prompt_ids + dialogue.response_ids,
        "labels": [-100] * len(dialogue.prompt_ids) + [token if trained else -100 for token, trained in response],
        "attention_mask": [1] * (len(dialogue.prompt_ids) + len(dialogue.response_ids)),
    }


def _shown(items: Iterable[Any], total: int, what: str) -> Iterator[Any]:
    return iter(tqdm(items, total=total, desc=what, unit="game", disable=None))


def _texts(config: Config, curriculum: Curriculum, games: Iterable[Dealt]) -> Iterator[str]:
    """Yields the tokenizer's training texts: dialogues, the game's further words, and each role."""
    temporary = Chat(train_tokenizer(["stand-in"], 300))  # to play the dialogues before the tokenizer exists
    controls = re.compile("|".join(map(re.escape, temporary.tokenizer.get_added_vocab())))
    lesson = replace(curriculum.demonstrations, player=curriculum.speaker)
    # the config's limits count the tokens of the tokenizer to come: of the temporary one nearly every byte is one
    unlimited = {"turn_tokens": 1 << 20, "dialogue_tokens": None, "context_tokens": None}
    for dialogue in _demonstrations(config.changed(limits=unlimited), games, temporary, lesson):
        yield from controls.split(temporary.tokenizer.decode(dialogue.prompt_ids + dialogue.response_ids))
        yield from (turn.error for turn in dialogue.turns if turn.error)
    yield from curriculum.words
    # often enough for each to become one token
    yield from (f"{role}\n" for role in ("system", "user", "assistant") for _ in range(500))
