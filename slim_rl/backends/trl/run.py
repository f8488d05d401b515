"""One run on one machine: held-out games, training, held-out games; resumable at any moment.

With `train.eval_every` held-out games are played during training too. That changes nothing in the training, since each sample has its own
random seed.

    runs/<name>/config.yaml           config of the run
    runs/<name>/checkpoints/          TRL's, marked when complete
    runs/<name>/spend/                cost of the partner's calls, over all launches
    runs/<name>/metrics.jsonl         one line per step
    runs/<name>/tensorboard/          if train.report_to names tensorboard: `tensorboard --logdir runs`
    runs/<name>/model/                trained model, its tokenizer and its card
    <log.dir>/<name>/train.jsonl      one line per dialogue; train-<rank>.jsonl for torchrun's further processes
    <log.dir>/<name>/eval-<step>.jsonl      and eval-<step>-<rank>.jsonl: each process plays its share of the held-out games

Nothing is written there before model, games and partner are known to be usable, and one run at a time writes there (see `runs`). Under
torchrun rank 0 alone prints and saves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers.utils.logging import disable_progress_bar

from slim_rl import provenance
from slim_rl.backends import Result, say
from slim_rl.backends.card import model_card
from slim_rl.backends.trl.arguments import grpo_arguments
from slim_rl.backends.trl.callbacks import HeldOut, last_whole_checkpoint
from slim_rl.backends.trl.rollouts import Rollouts
from slim_rl.backends.trl.trainer import make_trainer
from slim_rl.config import Config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.failures import nothing_measured
from slim_rl.dialogue.held_out import SCOPE, play_held_out
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.requirements import check_training
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import DataError, Diverged, RunStopped, SlimError
from slim_rl.files import disk_errors, write_atomically
from slim_rl.policies import check_model_folder
from slim_rl.policies.lora import adapted_layers, check_adapters
from slim_rl.policies.transformers import TransformersPolicy, load_model, load_policy, save_model
from slim_rl.ranks import own_rank
from slim_rl.runs import RunFolder
from slim_rl.seeds import seed_of


def train(config: Config, fresh: bool = False) -> Result:
    """Trains by TRL, or continues an interrupted run of this name and configuration.

    Args:
        fresh: remove what an earlier run of this name wrote, once this one is known to work.

    Raises:
        ConfigError: another configuration has run under this name, or the model or the partner cannot be used.
        SlimError: another process works on the run; the games cannot be used; or the disk is full.
        RunStopped: too many dialogues failed, or the partner takes no more calls; the steps before are saved.
    """
    check_training(config)
    torch.set_num_threads(config.train.threads)
    rank = own_rank()
    folder = RunFolder(config)
    if rank == 0:
        folder.check(fresh)
        check_model_folder(folder.path / "model")
    else:
        disable_progress_bar()
    arguments = grpo_arguments(config, folder.path)  # under torchrun this is where the processes meet
    with arguments.main_process_first(local=False):
        rows, held_out = load_rows(config, "train"), _held_out_rows(config)
    seats = 2 * len({row.game_id for row in rows}) if config.selfplay else len(rows)
    if seats < config.train.games_per_step:
        raise DataError(
            f"{config.data.train} has {len(rows)} games, too few for a step of train.games_per_step = {config.train.games_per_step}; "
            "generate more (data.num_train) or lower it."
        )
    policy, chat = load_policy(config.policy)
    if config.train.lora:
        check_adapters(policy.model, config.train.lora.target_modules)
    worker = RolloutWorker(config, chat, policy)
    # One event loop for all steps: connections to the partner stay open, and its rate limits carry over from step to step.
    with asyncio.Runner() as runner, ExitStack() as stack:
        with arguments.main_process_first(local=False):
            if rank == 0:
                stack.enter_context(folder.working(fresh))
            worker.keep_spend(folder.path)
        return _train(folder, worker, policy, chat, rows, held_out, rank, runner.run)


def _train(
    folder: RunFolder,
    worker: RolloutWorker,
    policy: TransformersPolicy,
    chat: Chat,
    rows: Sequence[GameRow],
    held_out: Sequence[GameRow],
    rank: int,
    run: Callable[..., Any],
) -> Result:
    config, model_dir = folder.config, folder.path / "model"

    def evaluate(step: int) -> list[Dialogue]:
        """Plays the held-out games in all processes; rank 0 returns the dialogues."""
        if not held_out:
            return []
        policy.reseed(seed_of(config.seed, SCOPE))
        processes, name = PartialState(), f"eval-{step:06}"
        number = processes.num_processes
        share = f", share {rank + 1} of {number}" if number > 1 else ""
        earlier = _logged(folder.logs, name)
        processes.wait_for_everyone()  # none writes while another reads
        path = folder.logs / (f"{name}-{rank}.jsonl" if rank else f"{name}.jsonl")
        mine = held_out[rank::number]
        stopped, played = "", list[Dialogue]()
        try:
            title = f"held-out games{share}"
            played = play_held_out(worker, mine, path, step=step, earlier=earlier, title=title, run=run)
        except SlimError as error:
            if not worker.stopped:
                raise
            stopped = str(error)
        # All wait for all here, and stop at once, as in `Rollouts`: those that save wait for each other.
        outcomes = gather_object([(stopped, nothing_measured({name: played}))])
        ends = next((why for why, _ in outcomes if why), "") or (
            outcomes[0][1] if all(lost for _, lost in outcomes) else ""
        )
        if ends:
            raise RunStopped(ends)
        return [] if rank else _logged(folder.logs, name)

    def made() -> list[provenance.Entry]:
        return provenance.read(folder.logs)

    def save(model: Any) -> None:
        if rank == 0:
            save_model(model, chat.tokenizer, model_dir, card=model_card(config, step=config.train.steps, made=made()))

    before = evaluate(0) if config.train.eval_before else []
    checkpoint = last_whole_checkpoint(folder.path / "checkpoints", remove_torn=rank == 0)
    step = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
    if step and rank == 0:
        resumes = f"resumes from step {step} of {config.train.steps}" if step < config.train.steps else "is trained"
        say(f"{config.name} {resumes}: {checkpoint} is its last checkpoint (--fresh starts over)")
    if step < config.train.steps:
        name = "train.jsonl" if rank == 0 else f"train-{rank}.jsonl"
        with DialogueLog(folder.logs / name, from_step=step, tokens=config.log.tokens) as log:
            rollouts = Rollouts(worker, policy, rows, log, run)
            trainer = make_trainer(config, policy.model, chat.tokenizer, rollouts, folder.path)
            trainer.add_callback(HeldOut(evaluate, trainer.log))
            try:
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
                trainer.check_finite()
                if (last := trainer.state.global_step) < config.train.steps:
                    raise SlimError(
                        f"Training ended after {last} of {config.train.steps} steps, so that no model is saved; the games of "
                        f"{config.data.train} may be too few for a step."
                    )
            except RunStopped as stop:
                trainer.save_now()
                raise RunStopped(f"{stop} {_kept(trainer.state.global_step)}") from None
            except Diverged as gone:
                raise _diverged(gone, config, trainer.state.global_step, folder.path) from None
        save(trainer.accelerator.unwrap_model(trainer.model))
    elif checkpoint is not None:  # trained to its end before
        policy.model = restore(policy.model, config, checkpoint)
        save(policy.model)
    after = evaluate(max(step, config.train.steps))
    if after:
        card = model_dir / "README.md"
        with disk_errors("model's card", card):
            results, start = {"after training": after}, {"before training": before}
            text = model_card(config, step=config.train.steps, results=results, before=start, made=made())
            write_atomically(card, text)
    return Result(folder.path, folder.logs, before, after)


def _logged(folder: Path, name: str) -> list[Dialogue]:
    """Reads the dialogues of an evaluation that any process has logged; of repeated ones the last."""
    files = sorted(folder.glob(f"{name}*.jsonl"))
    return list({dialogue.id: dialogue for file in files for dialogue in read_log(file)}.values())


def _diverged(gone: Diverged, config: Config, steps: int, folder: Path) -> Diverged:
    whole = last_whole_checkpoint(folder / "checkpoints", remove_torn=False)
    return Diverged(
        f"Training stops after {steps} steps. {gone} Nothing of it is saved"
        + (f"; the last checkpoint is {whole}. " if whole else ". ")
        + f"Lower train.learning_rate ({config.train.learning_rate:g}) and start over with --fresh, or under another name "
        "(--set name=...)."
    )


def _kept(steps: int) -> str:
    return f"The {steps} steps before it are saved; the same command resumes from there." if steps else ""


def _held_out_rows(config: Config) -> list[GameRow]:
    return load_rows(config, "eval")[: config.train.eval_games] if config.train.eval_games else []


def restore(start: Any, config: Config, checkpoint: Path) -> Any:
    """Loads the model of a checkpoint: all weights, or the adapters over the initial model."""
    if (checkpoint / "adapter_config.json").exists():
        from peft import PeftConfig, PeftModel

        check_adapters(start, adapted_layers(PeftConfig.from_pretrained(checkpoint)))
        return PeftModel.from_pretrained(start, checkpoint)
    return load_model(config.policy.changed(model=str(checkpoint)))[0]
