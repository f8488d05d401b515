"""Run on one machine: held-out games, training, held-out games; resumable at any moment.

With `train.eval_every` held-out games are played during training too. That changes nothing in the training, since each sample has its own
random seed.

    runs/<name>/config.yaml           config of the run
    runs/<name>/checkpoints/          TRL's, marked when complete
    runs/<name>/spend/                cost of the partner's calls, over all launches
    runs/<name>/metrics.jsonl         one line per step
    runs/<name>/tensorboard/          if train.report_to names tensorboard: `tensorboard --logdir runs`
    runs/<name>/model/                trained model, its tokenizer and its card
    <run>/logs/train.jsonl      one line per dialogue; train-<rank>.jsonl for torchrun's further processes
    <run>/logs/eval-<step>.jsonl      and eval-<step>-<rank>.jsonl: each process plays its share of the held-out games

Nothing is written there before model, games and partner are known to be usable, and one run at a time writes there (see `runs`). Under
torchrun rank 0 alone prints and saves.
"""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers.utils.logging import disable_progress_bar

from slim_rl import provenance
from slim_rl.backends import Result, say
from slim_rl.backends.card import model_card
from slim_rl.backends.ready import is_trained
from slim_rl.backends.trl.arguments import grpo_arguments
from slim_rl.backends.trl.callbacks import HeldOut
from slim_rl.backends.trl.checkpoints import last_whole_checkpoint, restore
from slim_rl.backends.trl.rollouts import Rollouts
from slim_rl.backends.trl.trainer import make_trainer
from slim_rl.config import Config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.evaluation import SCOPE, play_held_out
from slim_rl.dialogue.failures import nothing_measured
from slim_rl.dialogue.games_file import GameRow, load_rows
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.measures import cannot_play
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import Diverged, RunStopped, SlimError
from slim_rl.formats import count
from slim_rl.policies.lora import check_adapters
from slim_rl.policies.transformers import TransformersPolicy, load_policy, save_model
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
    folder = RunFolder(config)
    torch.set_num_threads(config.train.threads)
    rank = own_rank()
    if rank:
        disable_progress_bar()
    arguments = grpo_arguments(config, folder.path)  # under torchrun this is where the processes meet
    with arguments.main_process_first(local=False):
        rows, held_out = load_rows(config, "train"), load_rows(config, "eval")[: config.train.eval_games]
    policy, chat = load_policy(config.policy)
    if config.train.lora:
        check_adapters(policy.model, config.train.lora.target_modules)
    worker = RolloutWorker(config, chat, policy)
    # One event loop for all steps: connections to the partner stay open, and its rate limits carry over from step to step.
    with asyncio.Runner() as runner, ExitStack() as stack:
        with arguments.main_process_first(local=False):
            if rank == 0:
                stack.enter_context(folder.begin(fresh))
            worker.keep_spend(folder.path)
        return Run(config, folder, worker, policy, chat, rows, held_out, rank, runner.run).play_and_train()


@dataclass
class Run:
    """A run whose folder is locked and whose policy is loaded, in one of its processes."""

    config: Config
    folder: RunFolder
    worker: RolloutWorker
    policy: TransformersPolicy
    chat: Chat
    rows: list[GameRow]
    held_out: list[GameRow]
    rank: int
    run: Callable[..., Any]  # runs a coroutine

    def play_and_train(self) -> Result:
        """Plays the held-out games, trains, plays them again, and saves the model with its card."""
        train = self.config.train
        before = self.evaluate(0) if train.eval_before else []
        if sentence := cannot_play(before):
            say(sentence)
        self.train_steps()
        after = self.evaluate(train.steps)
        if self.rank == 0:
            results = {"before training": before, "after training": after}
            made = provenance.read(self.folder.logs)
            card = model_card(self.config, step=train.steps, results=results, made=made)
            save_model(self.policy.model, self.chat.tokenizer, self.folder.path / "model", card=card)
        return Result(self.folder.path, self.folder.logs, before, after)

    def train_steps(self) -> None:
        """Trains from the last checkpoint to the end, and leaves the trained model in the policy."""
        config, steps = self.config, self.config.train.steps
        checkpoint = last_whole_checkpoint(self.folder.path / "checkpoints", remove_torn=self.rank == 0)
        step = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
        if self.rank == 0:
            is_trained(config.name, self.folder.path, step, steps)  # which says so
            for left in self.folder.logs.glob("train-[0-9]*.jsonl"):
                if int(left.stem[6:]) >= PartialState().num_processes:  # of a start with more processes
                    DialogueLog(left, from_step=step).close()
            for played in self.folder.logs.glob("eval-[0-9]*.jsonl"):
                if int(played.stem[5:11]) > step:  # of weights that are lost
                    played.unlink()
        if checkpoint is not None and step == steps:
            self.policy.model = restore(self.policy.model, config, checkpoint)
            return
        name = f"train-{self.rank}.jsonl" if self.rank else "train.jsonl"
        with DialogueLog(self.folder.logs / name, from_step=step, tokens=config.log.tokens) as log:
            rollouts = Rollouts(self.worker, self.policy, self.rows, log, self.run)
            trainer = make_trainer(config, self.policy.model, self.chat.tokenizer, rollouts, self.folder.path)
            trainer.add_callback(HeldOut(self.evaluate, trainer.log))
            try:
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
                trainer.check_finite()
            except RunStopped as stop:
                trainer.save_now()
                last = trainer.state.global_step
                saved = f" The {last} steps before it are saved; the same command resumes from there." if last else ""
                raise RunStopped(f"{stop}{saved}") from None
            except Diverged as gone:
                whole = last_whole_checkpoint(self.folder.path / "checkpoints", remove_torn=False)
                kept = f"; the last checkpoint is {whole}" if whole else ""
                raise Diverged(
                    f"Training stops after {trainer.state.global_step} steps. {gone} Nothing of it is saved{kept}. Lower "
                    f"train.learning_rate ({config.train.learning_rate:g}) and start over with --fresh, or under another name "
                    "(--set name=...)."
                ) from None
        self.policy.model = trainer.accelerator.unwrap_model(trainer.model)

    def evaluate(self, step: int) -> list[Dialogue]:
        """Plays the held-out games in all processes; rank 0 returns the dialogues."""
        if not self.held_out:
            return []
        self.policy.reseed(seed_of(self.config.seed, SCOPE))
        processes, name = PartialState(), f"eval-{step:06}"
        when = f"after {count(step, 'step')}" if step else "before training"
        number = processes.num_processes
        share = f", share {self.rank + 1} of {number}" if number > 1 else ""
        earlier = _logged(self.folder.logs, name)
        processes.wait_for_everyone()  # none writes while another reads
        path = self.folder.logs / (f"{name}-{self.rank}.jsonl" if self.rank else f"{name}.jsonl")
        mine = self.held_out[self.rank :: number]
        stopped, played = "", list[Dialogue]()
        try:
            title = f"held-out games {when}{share}"
            played = play_held_out(self.worker, mine, path, step=step, earlier=earlier, title=title, run=self.run)
        except SlimError as error:
            if not self.worker.stopped:
                raise
            stopped = str(error)
        # All wait for all here, and stop at once, as in `Rollouts`: those that save wait for each other.
        outcomes = gather_object([(stopped, nothing_measured({f"held-out games {when}": played}), bool(played))])
        stops = [why for why, *_ in outcomes if why] or [outcomes[0][1]] * all(lost for _, lost, n in outcomes if n)
        if stops:
            raise RunStopped(stops[0])
        return [] if self.rank else _logged(self.folder.logs, name)


def _logged(folder: Path, name: str) -> list[Dialogue]:
    """Reads the dialogues of an evaluation that any process has logged; of repeated ones the last."""
    files = sorted(folder.glob(f"{name}*.jsonl"))
    return list({dialogue.id: dialogue for file in files for dialogue in read_log(file)}.values())
