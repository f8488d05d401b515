"""Dry run with TRL: dialogues to play, duration if an earlier run shows it, and files to be written.

It writes one file, next to the run's folder and not in it: the complete config, and TRL's arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from slim_rl import bundled, jsonl
from slim_rl.backends.cost import evaluation_dialogues
from slim_rl.backends.gpus import local_processes
from slim_rl.backends.trl.arguments import grpo_arguments, micro_batch
from slim_rl.config import Config, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.errors import ConfigError
from slim_rl.files import disk_errors
from slim_rl.formats import count
from slim_rl.policies import load_tokenizer
from slim_rl.runs import configuration


def dry_run(config: Config) -> list[str]:
    """Writes the file and returns the lines to print. Raises SlimError if the batch does not divide or writing fails."""
    file = config.output_dir / f"{config.name}.dry-run.yaml"
    micro_batch(config, local_processes(config.train.processes))
    if Path(model := bundled.model(config.policy.model)).is_dir():  # as the run will: the template is tried, too
        Chat(load_tokenizer(model), config.policy.thinking)
    arguments = json.loads(grpo_arguments(config, config.run_dir).to_json_string())
    with disk_errors("dry run's file", file):
        config.write(file, trl=arguments)
    return [*_amounts(config), f"The whole config and TRL's arguments are in {file}."]


def _amounts(config: Config) -> Iterator[str]:
    train = config.train
    yield (
        f"{config.name}: {count(train.steps, 'step')} of {train.dialogues} dialogues ({train.games_per_step} games, {train.group_size} each): "
        f"{train.steps * train.dialogues:,} in training, {evaluation_dialogues(config):,} on held-out games."
    )
    if seconds := seconds_a_step(config):
        minutes = train.steps * seconds / 60
        yield f"Training takes about {minutes:,.1f} minutes, at {seconds:.1f} s a step as in the run that is in {config.run_dir}."
    yield f"The run is written to {config.run_dir}, its dialogues to {config.log.dir / config.name}."


def seconds_a_step(config: Config) -> float | None:
    """Returns the seconds per step of the run in this run's folder; None without one of the same size."""
    metrics = config.run_dir / "metrics.jsonl"
    if not metrics.exists() or not _same_size(config, config.run_dir / "config.yaml"):
        return None
    times = [line.data["step_time"] for line in jsonl.scan(metrics) if not line.error and "step_time" in line.data]
    return median(times) if times else None


def _same_size(config: Config, path: Path) -> bool:
    """Returns True if the run configured in `path` plays the same model as often per step, with as many processes."""
    try:
        earlier = parse_config(configuration(path) or {})
    except ConfigError:
        return False
    return (earlier.train.dialogues, earlier.train.processes, earlier.policy.model) == (
        config.train.dialogues, config.train.processes, config.policy.model,
    )  # fmt: skip
