"""The command line that slime is given: the table of keys (`slim_rl.keys`), and what a dialogue, these GPUs and this model ask for.

Flags are kept as a dictionary, flag -> value, in the order they are printed: False or None leaves a flag out, True gives it
without a value, a list gives it several. A flag that the user gives takes the place of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slim_rl.backends import RESPONSE_TOKENS
from slim_rl.backends.checkpoints import LAST_WHOLE
from slim_rl.backends.slime.layout import Layout
from slim_rl.backends.slime.model import TOKENS_PER_GPU, Flags, parse_flags
from slim_rl.config import Config
from slim_rl.errors import ConfigError
from slim_rl.keys import changed, disjoint, values

CONTEXT_TOKENS = 8192  # where the config sets no limit: a response, and the prompt (about 1k tokens) beside it
# Dialogues an engine is given at once, where slime is told nothing else.
_CONCURRENCY = 512

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One run, ready to be launched.

    Attributes:
        config: its own config: absolute paths, the model's folder, the run's name.
        folder: where it is kept.
        start: the checkpoint it begins from: a Hugging Face folder or one in Megatron's format.
        model_flags: the architecture, for Megatron; None while slime's model scripts are not known.
        layout: its GPUs.
        asynchronous: "0", "1" or "full".
        eval_interval: steps between evaluations; 0 for none.
        router_policy: of the SGLang router; empty for its own.
    """

    config: Config
    folder: Path
    start: Path
    model_flags: Flags | None
    layout: Layout
    asynchronous: str
    eval_interval: int
    router_policy: str

    @property
    def entry(self) -> str:
        """slime's script."""
        return "train.py" if self.asynchronous == "0" else "train_async.py"

    @property
    def resumes(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return (self.folder / LAST_WHOLE).is_file()


def command_line(run: Run, own: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """All words after slime's script: the model's, less each flag of ours; ours, less each flag of the user's; and the user's `own`.

    Raises:
        ValueError: two of our own parts set the same flag.
    """
    given = parse_flags(own)
    run = replace(run, config=_settled(run.config, environment))
    ours = disjoint(
        _cluster(run.layout),
        values(run.config, "slime"),
        _checkpoints(run),
        _rollout(run),
        _evaluation(run),
        _grpo(),
        _optimizer(run),
        _performance(run),
        _sglang(run),
        _tracking(run, environment),
    )
    arguments = (run.model_flags or {}) | ours
    return [*words({flag: value for flag, value in arguments.items() if flag not in given}), *own]


def _settled(config: Config, environment: Mapping[str, str]) -> Config:
    """The config with what it leaves to this launcher: its limits, and whether Weights & Biases, set up in the environment, is used."""
    context = context_tokens(config)
    limits = {
        "context_tokens": context,
        "dialogue_tokens": config.limits.dialogue_tokens or min(RESPONSE_TOKENS, context),
    }
    report = config.train.report_to
    if environment.get("WANDB_API_KEY") or environment.get("WANDB_MODE") == "offline":
        report = tuple(dict.fromkeys((*report, "wandb")))
    return changed(config, limits=limits, train={"report_to": report})


def check_warmup(flags: Flags) -> None:
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


def words(arguments: Mapping[str, Any]) -> list[str]:
    """Flags and their values as words of a command line."""
    found: list[str] = []
    for flag, value in arguments.items():
        if value is None or value is False:
            continue
        found.append(flag)
        if value is not True:
            found += [str(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
    return found


def _cluster(layout: Layout) -> Arguments:
    return {
        "--colocate": layout.colocate,
        "--rollout-num-gpus": None if layout.colocate else layout.rollout_gpus,
        "--actor-num-nodes": layout.actor_nodes,
        "--actor-num-gpus-per-node": layout.actor_gpus,
        "--num-gpus-per-node": layout.node_gpus,
    }


def _checkpoints(run: Run) -> Arguments:
    return {
        "--ref-load": run.start,  # where a new run starts; also the reference of a KL term
        "--load": run.folder,  # where a run continues: slime falls back to --ref-load while there is no checkpoint here
        "--save": run.folder,
        # Megatron refuses other steps or another learning rate than the checkpoint's unless it is told that they are meant.
        "--override-opt-param-scheduler": run.resumes,
    }


def _rollout(run: Run) -> Arguments:
    config = run.config
    return {
        "--custom-generate-function-path": "slim_rl.rollout.generate",  # plays a dialogue
        "--dynamic-sampling-filter-path": "slim_rl.rollout.keep_usable_groups",  # drops groups with too many failed games
        "--custom-reward-post-process-path": "slim_rl.rollout.normalize_rewards",  # baselines that failed games cannot shift
        "--custom-rollout-log-function-path": "slim_rl.rollout.log_rollout",
        "--custom-eval-rollout-log-function-path": "slim_rl.rollout.log_eval_rollout",
        "--custom-config-path": run.folder / "config.yaml",
        "--prompt-data": config.data.train,
        "--input-key": "prompt",  # chat messages; the hook writes the template's tokens itself, so no --apply-chat-template
        "--metadata-key": "metadata",  # the game travels in it
        "--rollout-shuffle": True,
        "--global-batch-size": config.train.dialogues,  # one update a step: on-policy
        "--balance-data": True,  # dialogues differ in length; GPUs should not
    }


def context_tokens(config: Config) -> int:
    """Tokens of a prompt and its response together, at most."""
    return config.limits.context_tokens or CONTEXT_TOKENS


def _evaluation(run: Run) -> Arguments:
    if not run.eval_interval or run.config.data.eval is None:
        return {}
    return {
        "--eval-prompt-data": ["matching", run.config.data.eval],
        "--eval-interval": run.eval_interval,
        "--n-samples-per-eval-prompt": 1,  # held-out games are many; one dialogue each gives the tightest mean
    }


def _grpo() -> Arguments:
    return {
        # One terminal reward, and a group of dialogues of the same game to compare it with: no critic needed.
        "--advantage-estimator": "grpo",
        # Asking is a matter of exploring; an entropy bonus would pay for noise in every token instead.
        "--entropy-coef": 0.0,
        # SGLang sampled the tokens and Megatron recomputes their probabilities: truncated importance weights correct the gap.
        "--use-tis": True,
    }


def _optimizer(run: Run) -> Arguments:
    offload = run.layout.offload_optimizer
    return {
        "--optimizer": "adam",
        "--optimizer-cpu-offload": offload,
        "--overlap-cpu-optimizer-d2h-h2d": offload,
        "--use-precision-aware-optimizer": offload,
    }


def _performance(run: Run) -> Arguments:
    layout = run.layout
    return {
        "--tensor-model-parallel-size": layout.tensor_parallel,
        "--pipeline-model-parallel-size": 1,
        "--context-parallel-size": 1,
        "--expert-model-parallel-size": layout.expert_parallel,
        "--expert-tensor-parallel-size": 1 if layout.expert_parallel else None,
        "--sequence-parallel": layout.tensor_parallel > 1,
        # activations are recomputed: dialogues are long and memory is what limits the batch
        "--recompute-granularity": "full",
        "--recompute-method": "uniform",
        "--recompute-num-layers": 1,
        "--use-dynamic-batch-size": True,
        "--max-tokens-per-gpu": max(TOKENS_PER_GPU, context_tokens(run.config)),
        "--attention-dropout": 0.0,  # Megatron's default of 0.1 would make training disagree with sampling
        "--hidden-dropout": 0.0,
        "--accumulate-allreduce-grads-in-fp32": True,
        "--attention-softmax-in-fp32": True,
        "--attention-backend": "flash",
    }


def _sglang(run: Run) -> Arguments:
    layout = run.layout
    arguments: Arguments = {
        "--rollout-num-gpus-per-engine": layout.engine_gpus,
        "--sglang-mem-fraction-static": 0.7 if layout.colocate else 0.85,  # colocated, Megatron keeps a corner
        "--use-fault-tolerance": True,  # an engine that hangs is restarted; its dialogues are played again
        "--router-policy": run.router_policy or None,
    }
    if run.asynchronous == "full":
        # Two limits: the rollout function bounds the groups under way, and slime the samples; this one is to let all of them in.
        dialogues = run.config.slime.steps_under_way * run.config.train.dialogues
        arguments["--rollout-function-path"] = "slim_rl.rollout.generate_fully_async"
        arguments["--sglang-server-concurrency"] = max(_CONCURRENCY, -(-dialogues // layout.engines))
    return arguments


def _tracking(run: Run, environment: Mapping[str, str]) -> Arguments:
    arguments: Arguments = {}
    project = environment.get("WANDB_PROJECT") or "slim-rl"
    report = run.config.train.report_to
    if "wandb" in report:
        # the key stays in the environment: slime would log a --wandb-key with the run's other arguments
        arguments |= {
            "--wandb-project": project,
            "--wandb-group": environment.get("WANDB_GROUP") or run.config.name,
            "--wandb-dir": run.folder,
        }
    if "tensorboard" in report:
        arguments |= {"--tb-project-name": project, "--tb-experiment-name": run.config.name}
    return arguments
