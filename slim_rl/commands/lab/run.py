"""`slim-rl lab run`: runs the steps of an experiment in order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from slim_rl.commands import load
from slim_rl.errors import ConfigError, SlimError
from slim_rl.lab.experiment.contrasts import load_manifest, manifest_file
from slim_rl.lab.experiment.reach import out_of_reach
from slim_rl.lab.experiment.steps import Step, step_of
from slim_rl.processes import interruptible, running, signals_end_the_run

_UsageError: type[Any] = typer.BadParameter.__mro__[1]  # from click, or from typer's copy of click
STOP_SECONDS = 180.0  # for a step to end; its runs have 120


def command(
    folder: Annotated[Path, typer.Argument(help="folder of an experiment, or its YAML file", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the commands, and stop")] = False,
) -> None:
    """Run the steps of an experiment; finished runs are skipped, interrupted ones resume."""
    path = manifest_file(folder)
    manifest, contrasts = load_manifest(path)
    steps = [step_of(entry, number, path, bool(manifest.arms)) for number, entry in enumerate(manifest.steps, 1)]
    for step in steps:
        check(step, path)
    for sentence in out_of_reach(contrasts, seeds_of(steps, list(manifest.arms))):
        typer.echo(f"slim-rl: {sentence}", err=True)
    for step in steps:
        done = step.makes is not None and step.makes.exists()
        typer.echo(f"{step}{f'  # {step.makes} exists' if done else ''}")
        if not (done or dry_run):
            with interruptible("the same command resumes."), signals_end_the_run():
                _play(step)


def check(step: Step, path: Path) -> None:
    """Parses a step's arguments as its command does. Raises ConfigError if the command rejects them."""
    if step.program:
        return
    try:
        load(step.name).make_context(step.name, list(step.words))
    except ImportError as error:
        raise ConfigError(
            f"{path}: the step '{step.name}' is not a command. Choose one that slim-rl --help lists."
        ) from error
    except _UsageError as error:
        raise ConfigError(f"{path}: the step '{step}' is invalid: {error.format_message()}") from error


def seeds_of(steps: list[Step], arms: list[str]) -> dict[str, set[int]]:
    """Returns the seeds that the steps give each arm."""
    from slim_rl.commands.lab.arms import parse_seeds

    seeds: dict[str, set[int]] = {}
    for step in steps:
        if step.name == "lab arms":
            options = load(step.name).make_context(step.name, list(step.words)).params
            for arm in options["arm"] or arms:
                seeds.setdefault(arm, set()).update(parse_seeds(options["seeds"]))
    return seeds


def _play(step: Step) -> None:
    with running(step.command, STOP_SECONDS) as process:
        code = process.wait()
    if code:
        raise SlimError(f"The step '{step}' failed. Fix the cause, and run the same slim-rl lab run to resume there.")
