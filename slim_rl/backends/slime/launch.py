"""What `scripts/run_matching.sh` asks of Python: the one config as shell variables, and the files a run starts from.

    python -m slim_rl.backends.slime.launch settings …   prints assignments for bash's eval; changes nothing
    python -m slim_rl.backends.slime.launch prepare …    writes the run's config.yaml and the games, if they are missing
    python -m slim_rl.backends.slime.launch runtime FILE … writes the Ray job's environment into a file that is its owner's alone

The config decides everything that belongs to the experiment; the script adds what belongs to the machines.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slim_rl.backends.slime.model import can_split, find_architecture, read_model_config, size_up
from slim_rl.config import Config, load_config
from slim_rl.errors import ConfigError, SlimError

# Where the config sets no limit: a long 8×8 dialogue with room to spare, and the prompt (about 1k tokens) beside it.
RESPONSE_TOKENS, CONTEXT_TOKENS = 6144, 8192
# Training packs whole dialogues; one that is longer than this makes a pack of its own.
TOKENS_PER_GPU = 9216
# Above this, converting the checkpoint is spread over a node's GPUs.
CONVERT_ON_ONE_GPU = 9e9
# Set on this machine, they are set for the job too: keys, caches and network settings.
PASSED_ON = (
    "OPENAI_",
    "WANDB_",
    "HF_",
    "NCCL_",
    "GLOO_",
    "NVSHMEM_",
    "TENSORBOARD_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)

Settings = dict[str, str | int | float | list[str]]


def locate_model(model: str, download: bool) -> Path:
    """The checkpoint's folder: a local path as it is, a hub name from the hub's cache.

    Args:
        model: a folder, ``owner/name``, or a bare Qwen name such as ``Qwen3-4B``.
        download: fetch the whole checkpoint; otherwise its config.json alone.

    Raises:
        ConfigError: neither a folder nor a name the hub knows.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve()
    name = f"Qwen/{model}" if model.startswith("Qwen") and "/" not in model else model
    try:
        import huggingface_hub

        if download:
            return Path(huggingface_hub.snapshot_download(name))
        return Path(huggingface_hub.hf_hub_download(name, "config.json")).parent
    except Exception as error:  # the hub's client raises many kinds; all of them mean that there is no model
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"MODEL {model} is no folder here and cannot be had from the hub ({reason}); give a path."
        ) from error


def model_name(model: Path) -> str:
    """What to call the checkpoint in `model`: its folder's name, or its name on the hub for one in the hub's cache."""
    if model.parent.name == "snapshots":  # models--owner--name/snapshots/commit
        return model.parent.parent.name.rpartition("--")[2]
    return model.name


def run_config(path: Path, overrides: Sequence[str], model: Path, save_dir: Path | None) -> tuple[Config, Path]:
    """The run's own config and folder: relative paths made absolute, the log beside the checkpoints, the run named.

    Raises:
        ConfigError: the config is wrong, or asks for what slime cannot do.
    """
    config = load_config(path, overrides)
    for key, value, usual in (
        ("train.frozen", config.train.frozen, False),
        ("train.reward", config.train.reward, "game"),
    ):
        if value != usual:
            raise ConfigError(
                f"{key} is {value}, a control that only the trl backend plays; run it with `slim-rl train`."
            )
    folder = save_dir or config.output_dir / f"{config.name}-{model_name(model)}-{config.arm_name}"
    folder = folder.absolute()
    paths = {
        "data.train": str(config.data.train.absolute()),
        "log.dir": str(folder / config.log.dir),
        "policy.model": str(model),
        "train.backend": "slime",
        "name": folder.name,
        "arm": config.arm_name,
    }
    if config.data.eval is not None:
        paths["data.eval"] = str(config.data.eval.absolute())
    return load_config(path, [*overrides, *(f"{key}={json.dumps(value)}" for key, value in paths.items())]), folder


def settings(
    config: Config,
    model: Path,
    save_dir: Path,
    slime_dir: Path,
    gpus: int,
    rollout_gpus: int | None = None,
    tensor_parallel: int | None = None,
) -> Settings:
    """The shell variables of the launch script, from the run's config and the checkpoint.

    Args:
        gpus, rollout_gpus: see `size_up`.
        tensor_parallel: instead of the one that suits the model's size.

    Raises:
        SlimError: slime has no such model, or it cannot be split as asked.
    """
    shape = read_model_config(model)
    architecture = find_architecture(shape, slime_dir)
    size = size_up(shape, gpus, rollout_gpus)
    split = tensor_parallel or size.tensor_parallel
    if not can_split(shape, split):
        groups = shape.get("num_key_value_heads", shape["num_attention_heads"])
        raise ConfigError(f"TP={split} cannot split {model_name(model)}: it must divide its {groups} query groups.")
    if gpus % split:
        raise ConfigError(f"TP={split} does not divide the {gpus} GPUs of a node that train; choose a divisor.")
    train, limits, data = config.train, config.limits, config.data
    context = limits.context_tokens or CONTEXT_TOKENS
    # beside the checkpoint, as slime has it; but the hub's cache is no place of ours
    home = config.output_dir.absolute() if model.parent.name == "snapshots" else model.parent
    return {
        "MODEL_NAME": model_name(model),
        "MODEL_SCRIPT": architecture.script,
        "MODEL_CORRECTED": "; ".join(architecture.corrected),
        "MODEL_ARGS": architecture.flags,
        "MODEL_DIR": str(model),
        "MODEL_TORCH_DIST": str(home / f"{model_name(model)}_torch_dist"),
        "MODEL_TP": split,
        "MODEL_ENGINE_GPUS": size.engine_gpus,
        "MODEL_OFFLOAD": int(size.offload_optimizer),
        "MODEL_CONVERT_GPUS": gpus if size.parameters > CONVERT_ON_ONE_GPU else 1,
        "RUN_DIR": str(save_dir),
        "RUN_NAME": config.name,
        "RUN_GAMES": str(data.train),
        "RUN_EVAL_GAMES": str(data.eval or ""),
        "RUN_STEPS": train.steps,
        "RUN_GAMES_PER_STEP": train.games_per_step,
        "RUN_GROUP_SIZE": train.group_size,
        "RUN_BATCH": train.games_per_step * train.group_size,
        "RUN_LR": train.learning_rate,
        "RUN_LR_SCHEDULE": train.lr_schedule,
        "RUN_WARMUP": train.warmup_steps,
        "RUN_CLIP": train.clip_ratio,
        "RUN_CLIP_HIGH": round(1.4 * train.clip_ratio, 4),
        "RUN_CLIP_GRAD": train.max_grad_norm,
        "RUN_KL": train.kl_coef,
        "RUN_SCALE_REWARDS": int(train.scale_rewards),
        "RUN_SAVE_EVERY": train.save_every,
        "RUN_TEMPERATURE": config.policy.temperature,
        "RUN_TOP_P": config.policy.top_p,
        "RUN_SEED": config.seed,
        "RUN_RESPONSE_TOKENS": limits.dialogue_tokens or min(RESPONSE_TOKENS, context),
        "RUN_CONTEXT_TOKENS": context,
        "RUN_TOKENS_PER_GPU": max(TOKENS_PER_GPU, context),
        "RUN_WANDB": int("wandb" in train.report_to),
        "RUN_KEY": config.partner.openai.api_key_env,
        "RUN_TENSORBOARD": int("tensorboard" in train.report_to),
    }


def as_shell(values: Settings) -> str:
    """Assignments that bash's eval reads back to exactly these values."""
    lines = []
    for name, value in values.items():
        words = f"({shlex.join(value)})" if isinstance(value, list) else shlex.quote(str(value))
        lines.append(f"{name}={words}")
    return "\n".join(lines)


def prepare(config: Config, save_dir: Path) -> None:
    """Writes the run's config.yaml, which the hook reads, and the games that are missing."""
    from slim_rl.dialogue.dealing import ensure_games

    config.write(save_dir / "config.yaml")
    ensure_games(config)


def runtime_environment(
    repository: Path, slime_dir: Path, megatron_dir: Path | None, nvlink: bool, key: str = ""
) -> dict[str, Any]:
    """The Ray job's runtime environment. Keys (`key` names the partner's) travel in it, and not on a command line that every
    user of the machine can read.
    """
    places = [repository, slime_dir, *([megatron_dir] if megatron_dir else [])]
    path = os.pathsep.join([*map(str, places), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {name: value for name, value in os.environ.items() if name == key or name.startswith(PASSED_ON)}
    variables |= {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",  # Megatron's overlap of tensor-parallel communication needs one queue
        "NCCL_NVLS_ENABLE": str(int(nvlink)),
    }
    return {"env_vars": variables}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m slim_rl.backends.slime.launch", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("settings", "prepare"):
        command = commands.add_parser(name)
        command.add_argument("--config", type=Path, required=True)
        command.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
        command.add_argument("--model", required=True)
        command.add_argument("--save-dir", type=Path)
        command.add_argument("--slime-dir", type=Path)
        command.add_argument("--gpus", type=int, default=8, help="of a node, that train")
        command.add_argument("--rollout-gpus", type=int, help="of all nodes, that play")
        command.add_argument("--tp", type=int)
        command.add_argument("--download", action="store_true")
    runtime = commands.add_parser("runtime")
    runtime.add_argument("file", type=Path)
    runtime.add_argument("--slime-dir", type=Path, required=True)
    runtime.add_argument("--megatron-dir", type=Path)
    runtime.add_argument("--nvlink", action="store_true")
    runtime.add_argument("--key", default="", help="name of the variable with the partner's key")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the script's three calls; an error is one sentence on stderr and exit code 1."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "runtime":
            repository = Path(__file__).resolve().parents[3]
            environment = runtime_environment(
                repository, options.slime_dir, options.megatron_dir, options.nvlink, options.key
            )
            options.file.write_text(json.dumps(environment), encoding="utf-8")
            return 0
        model = locate_model(options.model, options.download)
        config, save_dir = run_config(options.config, options.overrides, model, options.save_dir)
        if options.command == "prepare":
            prepare(config, save_dir)
        else:
            values = settings(
                config, model, save_dir, options.slime_dir, options.gpus, options.rollout_gpus, options.tp
            )
            print(as_shell(values))
    except SlimError as error:
        print(f"run_matching: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
