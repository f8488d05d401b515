"""The command line that slime is given: the flags of the model's architecture, then three disjoint tables: what a run and its machines ask
for (`_of`), the config's keys (`slim_rl.config.trainers`), and what is the same in every run (`_ALWAYS`). A flag that the user gives takes the place
of ours.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slim_rl.backends import RESPONSE_TOKENS
from slim_rl.backends.checkpoints import last_whole
from slim_rl.backends.slime.layout import TOKENS_PER_GPU, Flags, Layout, parse_flags
from slim_rl.backends.slime.settings import Settings, whole
from slim_rl.config import Config
from slim_rl.config.trainers import disjoint, values
from slim_rl.dialogue.dealing import games_files
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.errors import ConfigError

CONTEXT_TOKENS = 8192  # where the config sets no limit: a response, and the prompt (about 1k tokens) beside it
TURN_ADVANTAGES = "slim_rl.rollout.use_turn_advantages"
_CONCURRENCY = 512  # dialogues an engine is given at once, where slime is told nothing else

_HELD_OUT = {"--eval-prompt-data", "--eval-config"}  # slime's flags for data to evaluate on

Arguments = dict[str, Any]  # flag -> value: False or None leaves it out, True gives it without a value, a list several


@dataclass(frozen=True)
class Job:
    """One run, ready to be launched.

    Attributes:
        config: its own config: absolute paths, the model's folder, the run's name.
        folder: where it is kept.
        start: the checkpoint it begins from: a Hugging Face folder or one in Megatron's format.
        model_flags: the architecture, for Megatron; None while slime's model scripts are not known.
        layout: its GPUs.
        settings: of the launch.
    """

    config: Config
    folder: Path
    start: Path
    model_flags: Flags | None
    layout: Layout
    settings: Settings

    @property
    def entry(self) -> str:
        """slime's script."""
        return "train.py" if self.settings.asynchronous == "0" else "train_async.py"

    @property
    def last(self) -> int | None:
        """The step of the checkpoint that it continues from, counted from 0; None before there is one."""
        return last_whole(self.folder)

    @property
    def done(self) -> bool:
        """Whether there is a checkpoint of its last step."""
        return self.last is not None and self.last + 1 >= self.config.train.steps


_ALWAYS: Arguments = {
    "--custom-generate-function-path": "slim_rl.rollout.generate",  # plays a dialogue
    "--dynamic-sampling-filter-path": "slim_rl.rollout.keep_usable_groups",  # drops groups with too many failed games
    "--custom-reward-post-process-path": "slim_rl.rollout.normalize_rewards",  # baselines that failed games cannot shift
    "--custom-rollout-log-function-path": "slim_rl.rollout.log_rollout",
    "--custom-eval-rollout-log-function-path": "slim_rl.rollout.log_eval_rollout",
    "--input-key": "prompt",  # chat messages; the hook writes the template's tokens itself, so no --apply-chat-template
    "--metadata-key": "metadata",  # the game travels in it
    "--rollout-shuffle": True,
    "--balance-data": True,  # dialogues differ in length; GPUs should not
    "--use-fault-tolerance": True,  # an engine that hangs is restarted; its dialogues are played again
    # One terminal reward, and a group of dialogues of the same game to compare it with: no critic needed.
    "--advantage-estimator": "grpo",
    # Asking is a matter of exploring; an entropy bonus would pay for noise in every token instead.
    "--entropy-coef": 0.0,
    # SGLang sampled the tokens and Megatron recomputes their probabilities: truncated importance weights correct the gap.
    "--use-tis": True,
    "--optimizer": "adam",
    "--pipeline-model-parallel-size": 1,
    "--context-parallel-size": 1,
    # activations are recomputed: dialogues are long and memory is what limits the batch
    "--recompute-granularity": "full",
    "--recompute-method": "uniform",
    "--recompute-num-layers": 1,
    "--use-dynamic-batch-size": True,
    "--attention-dropout": 0.0,  # Megatron's default of 0.1 would make training disagree with sampling
    "--hidden-dropout": 0.0,
    "--accumulate-allreduce-grads-in-fp32": True,
    "--attention-softmax-in-fp32": True,
    "--attention-backend": "flash",
}


def command_line(job: Job, own: Sequence[str]) -> list[str]:
    """All words after slime's script: the model's, less each flag of ours; ours, less each flag of the user's; and the user's `own`.

    Raises:
        ConfigError: by the flags together, Megatron could not divide the batch, or would not warm up.
        ValueError: the table of keys and we set the same flag.
    """
    given = parse_flags(own)
    job = replace(job, config=_settled(job, given))
    ours = disjoint(_of(job, given), values(job.config, "slime"), _ALWAYS)
    line = [
        *words({flag: value for flag, value in ((job.model_flags or {}) | ours).items() if flag not in given}),
        *own,
    ]
    flags = parse_flags(line)
    check_batch(flags, job.config.seats_trained)
    _check_warmup(flags)
    return line


def words(arguments: Mapping[str, Any]) -> list[str]:
    """Flags and their values as words of a command line."""
    found: list[str] = []
    for flag, value in arguments.items():
        if value is True:
            found.append(flag)
        elif value is not None and value is not False:
            found += [flag, *map(str, value if isinstance(value, (list, tuple)) else [value])]
    return found


def _of(job: Job, given: Flags) -> Arguments:
    """What depends on the run and its machines, beside what the user gives."""
    config, layout, folder, report = job.config, job.layout, job.folder, job.config.train.report_to
    evaluates = config.train.eval_every > 0
    fully = job.settings.asynchronous == "full"
    # Two limits: the rollout function bounds the groups being played, and slime the samples; this one is to let all of them in.
    under_way = config.slime.steps_under_way * config.train.dialogues
    project = os.environ.get("WANDB_PROJECT") or "slim-rl"
    # the key stays in the environment: slime would log a --wandb-key with the run's other arguments
    wandb = {
        "--wandb-project": project,
        "--wandb-group": os.environ.get("WANDB_GROUP") or config.name,
        "--wandb-dir": folder,
    }
    tensorboard = {"--tb-project-name": project, "--tb-experiment-name": config.name}
    return {
        "--colocate": layout.colocate,
        "--rollout-num-gpus": None if layout.colocate else layout.rollout_gpus,
        "--actor-num-nodes": layout.actor_nodes,
        "--actor-num-gpus-per-node": layout.actor_gpus,
        "--num-gpus-per-node": layout.node_gpus,
        "--rollout-num-gpus-per-engine": layout.engine_gpus,
        "--sglang-mem-fraction-static": 0.7 if layout.colocate else 0.85,  # colocated, Megatron keeps a corner
        "--router-policy": router_policy() or None,
        "--rollout-function-path": "slim_rl.rollout.generate_fully_async" if fully else None,
        "--sglang-server-concurrency": max(_CONCURRENCY, -(-under_way // layout.engines)) if fully else None,
        "--tensor-model-parallel-size": layout.tensor_parallel,
        "--sequence-parallel": layout.tensor_parallel > 1,
        "--expert-model-parallel-size": layout.expert_parallel,
        "--expert-tensor-parallel-size": 1 if layout.expert_parallel else None,
        "--optimizer-cpu-offload": layout.offload_optimizer,
        "--overlap-cpu-optimizer-d2h-h2d": layout.offload_optimizer,
        "--use-precision-aware-optimizer": layout.offload_optimizer,
        "--max-tokens-per-gpu": max(TOKENS_PER_GPU, config.limits.context_tokens or 0),
        "--ref-load": job.start,  # where a new run starts; also the reference of a KL term
        "--load": folder,  # where a run continues: slime falls back to --ref-load while there is no checkpoint here
        "--save": folder,
        # Megatron refuses other steps or another learning rate than the checkpoint's unless it is told that they are meant.
        "--override-opt-param-scheduler": job.last is not None,
        "--custom-advantage-function-path": TURN_ADVANTAGES if make_training_reward(config).by_turn else None,
        "--custom-config-path": folder / "config.yaml",
        "--prompt-data": config.data.train,
        "--global-batch-size": config.train.dialogues * config.seats_trained,  # one update a step: on-policy
        # slime takes a step's games for its dialogues, and would let the rate fall in half the steps
        "--lr-decay-iters": config.train.steps if config.selfplay else None,
        "--eval-prompt-data": ["matching", config.data.eval] if evaluates and "eval" in games_files(config) else None,
        # held-out games are many; one dialogue each gives the tightest mean
        "--n-samples-per-eval-prompt": 1 if evaluates else None,
        **(wandb if "wandb" in report else {}),
        **(tensorboard if "tensorboard" in report else {}),
    }


def router_policy() -> str:
    """One dialogue, one engine: only there is its prefix cached. slime's image has the router that can do it. Empty: its own."""
    if given := os.environ.get("ROUTER_POLICY"):
        return given
    try:
        return "consistent_hashing" if "slime" in importlib.import_module("sglang_router").__version__ else ""
    except (ImportError, AttributeError):
        return ""


def _settled(job: Job, given: Flags) -> Config:
    """The config with what it leaves to this launcher: its limits, how often it evaluates, where there is anything to evaluate on, and
    whether Weights & Biases, set up in the environment, is used.
    """
    config = job.config
    context = config.limits.context_tokens or CONTEXT_TOKENS
    dialogue = config.limits.dialogue_tokens or min(RESPONSE_TOKENS, context)
    report = config.train.report_to
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE") == "offline":
        report = tuple(dict.fromkeys((*report, "wandb")))
    limits = {"context_tokens": context, "dialogue_tokens": dialogue}
    held_out = "eval" in games_files(config) or bool(_HELD_OUT & given.keys())
    every = job.settings.evaluates_every(config.train.eval_every) if held_out else 0
    return config.changed(limits=limits, train={"report_to": report, "eval_every": every})


def check_batch(flags: Flags, seats: int = 1) -> None:
    """What Megatron and slime ask of the batch, on the flags as they will be given (the user's included).

    Args:
        seats: dialogues of a game that are trained on.

    Raises:
        ConfigError: the batch does not divide into micro-batches over the copies of the model, or dialogues would be thrown away.
    """

    def number(*names: str) -> int:
        """The product of what these flags are given; 1 for one that is not there."""
        return math.prod(whole(name, (flags.get(name) or ["1"])[0]) for name in names)

    gpus = number("--actor-num-nodes", "--actor-num-gpus-per-node")
    split = number("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size")
    if gpus % split:
        raise ConfigError(
            f"One copy of the model takes {split} GPUs (tensor × pipeline × context), which do not divide {gpus}."
        )
    experts = number("--expert-model-parallel-size", "--expert-tensor-parallel-size", "--pipeline-model-parallel-size")
    if gpus % experts:
        raise ConfigError(f"The experts are spread over {experts} GPUs, which do not divide the {gpus} that train.")
    copies = gpus // split
    games, group = number("--rollout-batch-size"), number("--n-samples-per-prompt") * seats
    batch, step = number("--global-batch-size"), copies * number("--micro-batch-size")
    if games * group % batch:
        raise ConfigError(
            f"A rollout of {games} × {group} = {games * group} dialogues is not a multiple of --global-batch-size {batch}, so "
            "slime would drop the rest. Choose a divisor."
        )
    if batch % step:
        grain = step // math.gcd(step, group)  # games that divide
        fits = [n for n in (games // grain * grain, (games // grain + 1) * grain) if n]
        whole_step = f"train.games_per_step to {' or '.join(map(str, fits))}"
        raise ConfigError(
            f"A batch of {batch} dialogues does not divide over {copies} copies of the model ({gpus} GPUs, {split} a copy) in "
            f"micro-batches of {step // copies}: set "
            f"{whole_step if batch == games * group else f'--global-batch-size to a multiple of {step}'}, or choose other GPUs or TP."
        )


def _check_warmup(flags: Flags) -> None:
    """Raises ConfigError where a warm-up takes all steps, by flags of the user's own: Megatron would stop at an assertion."""

    def number(flag: str) -> float | None:
        try:
            return float(flags[flag][-1])
        except (KeyError, IndexError, ValueError):  # left out, or for slime's own parser to refuse
            return None

    warmup, steps = number("--lr-warmup-iters"), number("--lr-decay-iters") or number("--num-rollout")
    if warmup and steps and warmup >= steps:
        raise ConfigError(
            f"--lr-warmup-iters is {warmup:.0f} in a run whose rate has {steps:.0f} steps, so that it never gets there: lower it, or "
            "leave it to train.warmup_steps, which is shortened where it must be."
        )
