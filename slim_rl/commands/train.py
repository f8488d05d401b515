"""`slim-rl train`: hands a config to the backend it names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from slim_rl.commands.options import ConfigFile, Overrides
from slim_rl.config import load_config
from slim_rl.errors import ConfigError


def command(
    config: ConfigFile,
    overrides: Overrides = None,
    backend: Annotated[str | None, typer.Option(help="trl, slime or verl; the config's by default")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="start anew instead of resuming")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be run, and stop")] = False,
    extra: Annotated[list[str] | None, typer.Argument(help="verl: its own overrides, key=value")] = None,
) -> None:
    """Train a policy; resumes by itself from its last checkpoint."""
    train(config, overrides or (), backend=backend, fresh=fresh, dry_run=dry_run, extra=extra or ())


def train(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    backend: str | None = None,
    fresh: bool = False,
    dry_run: bool = False,
    extra: Sequence[str] = (),
) -> None:
    """Trains by TRL here, or launches verl or slime.

    Args:
        extra: verl's own key=value words; slime's own flags and the settings of its launch.
        dry_run: check everything and print what would run; needs neither slime nor a GPU.

    Raises:
        SlimError: the config cannot be used, or the run could not be started.
        SystemExit: slime's job ended with another exit code than 0.
    """
    named = [f"train.backend={backend}"] if backend else []
    config = load_config(path, [*overrides, *named])
    if config.train.backend != "trl" and fresh:
        raise ConfigError("--fresh is for the trl backend; give the run another name or folder to start it anew.")
    if config.train.backend == "verl":
        from slim_rl.backends.verl.launch import split
        from slim_rl.backends.verl.launch import train as launch_verl

        ours, theirs = split(extra)
        launch_verl(load_config(path, [*overrides, *named, *ours]), theirs, dry_run=dry_run)
        return
    if config.train.backend == "slime":
        from slim_rl.backends.slime.launch import launch as launch_slime

        words = ["--config", str(path), *(f"--set={override}" for override in overrides), *extra]
        if code := launch_slime([*words, *(["--dry-run"] if dry_run else [])]):
            raise SystemExit(code)
        return
    if extra:
        raise ConfigError(f"'{extra[0]}' is an override for verl; with trl, keys are changed by --set.")
    if dry_run:
        from slim_rl.backends.trl.rollouts import grpo_arguments

        print(config.model_dump_json(indent=2))
        print(grpo_arguments(config, config.output_dir / config.name).to_json_string())
        return
    _train_here(config, fresh)


def _train_here(config: object, fresh: bool) -> None:
    import warnings

    from rich.console import Console

    from slim_rl.backends.trl import run as local

    # TRL marks rollout_func experimental at every start; that is why it is pinned.
    warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
    result = local.train(config, fresh=fresh)  # type: ignore[arg-type]
    if os.environ.get("RANK", "0") != "0":  # torchrun: the first process says it
        return
    from slim_rl.analysis.terminal_tables import before_after_table
    from slim_rl.analysis.verdict import verdict

    console = Console()
    if result.before and result.after:
        console.print(before_after_table(result.before, result.after))
        for sentence in verdict(result.before, result.after):
            console.print(sentence, highlight=False, markup=False)
    console.print(f"model: {result.run_dir / 'model'}\ndialogues: {result.log_dir}", style="dim", markup=False)
