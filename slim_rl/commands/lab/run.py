"""`slim-rl lab run`: runs the steps of an experiment in order, or trains the arms of a config.

A step is a command of `slim-rl` with its options by name; a step that trains may have arms and seeds:

- evaluate: {words: configs/matching_local.yaml, checkpoint: "runs/shy-s{1-4}/model", mode: "forced:{2,4}", set: {policy.top_p: 1}}
- train: {words: configs/matching_local.yaml, arms: [shy, mute], seeds: 0-7, jobs: 2, set: {train.processes: 1}}

{1-4} or {2,4}   one value per number
set              a mapping of keys to values; `set` is the option --set
words            positional arguments; one with a * expands to the matching files
after            trainer's flags, after --
makes            a path; the step is skipped if it exists
by               command line of another program, instead of `slim-rl` and the command
seeds            each arm is trained with each of them, in a process of its own, on the same budget and held-out games
arms             names of the experiment's arms; all by default
jobs             runs at a time

In an arm's values, `{log:NAME}` stands for the log folder of arm NAME's run with the same seed; a run that names one waits for it.
Everything is checked before anything runs. Complete runs are skipped, interrupted ones resume.
"""

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from slim_rl import backends
from slim_rl.commands import UsageError, load
from slim_rl.commands.options import Backend, Overrides, changes_of
from slim_rl.config import Config, load_config, read_yaml
from slim_rl.environment import is_ours
from slim_rl.errors import ConfigError, SlimError, did_you_mean
from slim_rl.lab.experiment.contrasts import load_manifest, manifest_file
from slim_rl.processes import interruptible, python_module, running, signals_end_the_run
from slim_rl.runs import RunFolder

MOST = 1000  # numbers in one list
POLL_SECONDS = 0.1  # between two polls of the processes
STOP_SECONDS = 120.0  # for a process to end, which may have to shut down a cluster
_RANGES = re.compile(r"\{(\d[\d,-]*)\}")
_LOG = re.compile(r"\{log:(\w+)\}")
_SPECIAL = ("words", "set", "after", "makes", "by", "arms", "seeds", "jobs")


@dataclass(frozen=True, slots=True)
class Run:
    """Process: a command of `slim-rl`, or another program, with its arguments.

    Attributes:
        name: name of the command, such as "evaluate"; of an arm's run, the run's name.
        program: the program with its first arguments; empty: `slim-rl`.
        config: settings of an arm's run; None for other commands.
        needs: names of the runs whose logs it reads.
    """

    name: str
    words: tuple[str, ...]
    program: tuple[str, ...] = ()
    config: Config | None = None
    needs: frozenset[str] = frozenset()

    @property
    def command(self) -> list[str]:
        return [*(self.program or python_module("slim_rl")), *self.words]

    def __str__(self) -> str:
        return shlex.join([*(self.program or ("slim-rl",)), *self.words])


@dataclass(frozen=True, slots=True)
class Step:
    """Processes of a step, `jobs` at a time; `makes`: path whose existence makes the step superfluous."""

    runs: list[Run]
    jobs: int = 1
    makes: Path | None = None

    @property
    def done(self) -> bool:
        return self.makes is not None and self.makes.exists()


def command(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER | CONFIG", help="folder of an experiment, or its YAML file; or a config", show_default=False
        ),
    ],
    arm: Annotated[list[str] | None, typer.Option(help="arm of the config (repeatable); all by default")] = None,
    seeds: Annotated[str | None, typer.Option(help="seeds, such as 0,1,2 or 0-2, which is the default")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="runs at a time")] = None,
    overrides: Overrides = None,
    backend: Backend = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the commands, and stop")] = False,
    extra: Annotated[list[str] | None, typer.Argument(help="trainer's flags of every arm, after --")] = None,
) -> None:
    """Run the steps of an experiment, or train the arms of a config; finished runs are skipped, interrupted ones resume.

    All options except --dry-run are for a config. The steps of an experiment have theirs in its YAML.
    """
    path, changes = manifest_file(what), changes_of(overrides, backend)
    if path.exists() and isinstance(data := read_yaml(path), dict) and "title" in data:
        if arm or seeds or jobs or changes or extra:
            raise ConfigError(
                f"{path} is an experiment: its steps have arms, seeds and settings. Change them there, or name a config to train its arms."
            )
        manifest, _ = load_manifest(path)
        steps = [step_of(entry, number, path, manifest.arms) for number, entry in enumerate(manifest.steps, 1)]
    else:
        options = {"arms": arm, "seeds": seeds or "0-2", "after": extra}
        steps = [Step(arms_runs(what, None, options, changes), jobs or 1)]
    left = [run.config for step in steps if not step.done for run in step.runs if run.config]
    lacks = "" if dry_run else next(filter(None, map(backends.missing, left)), "")
    for step in steps:
        for run in step.runs:
            typer.echo(f"{run}{f'  # {step.makes} exists' if step.done else ''}")
        if step.done or dry_run or lacks:
            continue
        with interruptible("the same command continues: complete runs are skipped, and the others resume."):
            play(step)
        if of_arms := [run.config for run in step.runs if run.config]:
            logs = shlex.join(str(_logs(each)) for each in of_arms)
            games = dict.fromkeys(each.environment for each in of_arms if not is_ours(each.environment))
            custom = "".join(f" --game {game}" for game in games)
            typer.echo(f"Report, with the differences between arms: slim-rl analyze {logs}{custom}")
    if lacks:
        backends.say(f"This is the plan, and nothing is run: {lacks}")


# -- from YAML to processes --------------------------------------------------------------------------------------------


def step_of(
    entry: Mapping[str, Any], number: int, path: Path, arms: Mapping[str, Mapping[str, Any]] | None = None
) -> Step:
    """Returns the step of an entry in the YAML. Raises ConfigError if it is malformed, or its command rejects it.

    Args:
        arms: the experiment's arms; None or empty: those of the step's config.
    """
    if len(entry) != 1 or not isinstance(options := next(iter(entry.values())), Mapping):
        raise ConfigError(
            f"{path}: step {number} is not one command with its options. Write, for example, evaluate: {{mode: free}}."
        )
    (name,) = entry
    words = [word for text in _texts(options.get("words", [])) for word in _matching(text)]
    if not isinstance(changes := options.get("set") or {}, Mapping):
        raise ConfigError(
            f"{path}: step {number} has a set without keys and values. Write, for example, set: {{train.steps: 9}}."
        )
    settings = [f"{key}={_value(value)}" for key, value in changes.items()]
    makes = Path(options["makes"]) if options.get("makes") else None
    if name == "train" and "seeds" in options:
        if unknown := options.keys() - set(_SPECIAL):
            raise ConfigError(f"{path}: step {number} trains arms and takes no {min(unknown)}. Set keys under set.")
        jobs = max(1, numbers_of(str(options.get("jobs", 1)))[0])
        return Step(arms_runs(Path(*words), arms, options, settings), jobs, makes)
    if lost := options.keys() & {"arms", "seeds", "jobs"}:
        raise ConfigError(f"{path}: step {number} has {min(lost)}, which only a train with seeds has.")
    for option, value in options.items():
        if option not in _SPECIAL and value is not False:
            flag = f"--{option.replace('_', '-')}"
            words += [flag] if value is True else [word for text in _texts(value) for word in (flag, text)]
    words += [word for setting in settings for word in ("--set", setting)]
    words += _after(options)
    program = tuple(shlex.split(options.get("by", "")))
    if not program:
        if settings and not words[0].startswith("-"):
            load_config(words[0], settings)  # raises before anything runs
        _check(name, words, path)
        words = [*name.split(), *words]
    return Step([Run(name, tuple(words), program)], makes=makes)


def arms_runs(
    config: Path, arms: Mapping[str, Mapping[str, Any]] | None, options: Mapping[str, Any], changes: Sequence[str]
) -> list[Run]:
    """Returns the runs of a step with arms, ordered by seed: every arm has one before any has two.

    Args:
        arms: the arms; None or empty: those of the config.
        options: those of the step: seeds, and if not all, arms; trainer's flags (after); the program, if another (by).
        changes: changes of the config, before those of an arm.

    Raises:
        ConfigError: an arm is unknown or invalid, or the backend cannot train it.
    """
    base = load_config(config, changes)
    known = arms or base.arms

    def overridden(arm: str, seed: int) -> list[str]:
        if arm not in known:
            raise ConfigError(f"There is no arm {arm}. Choose from {', '.join(known)}{did_you_mean(arm, known) or '.'}")
        own = [f"{key}={json.dumps(value)}" for key, value in known[arm].items()]
        return [*changes, *own, f"name={base.name}-{arm}-s{seed}", f"arm={arm}", f"seed={seed}"]

    def log_folder(seed: int, found: re.Match[str]) -> str:
        return str(_logs(load_config(config, overridden(found[1], seed))))

    program, runs = tuple(shlex.split(options.get("by", ""))), list[Run]()
    for seed in dict.fromkeys(numbers_of(str(options["seeds"]))):
        for arm in dict.fromkeys(_texts(options.get("arms") or list(known))):
            text = overridden(arm, seed)
            needs = frozenset(f"{base.name}-{other}-s{seed}" for change in text for other in _LOG.findall(change))
            own = [_LOG.sub(partial(log_folder, seed), change) for change in text]
            settings = load_config(config, own)  # raises for an invalid key, before anything runs
            backends.check(settings)
            sets = [word for change in own for word in ("--set", change)]
            words = (*(() if program else ("train",)), str(config), *sets, *_after(options))
            runs.append(Run(settings.name, words, program, settings, needs))
    return runs


def _logs(config: Config) -> Path:
    return RunFolder(config).logs.absolute()


def numbers_of(text: str) -> list[int]:
    """Returns the numbers of a list such as "0,1,5-8". Raises ConfigError for any other text."""
    numbers: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)
        some = range(int(ends[1]), int(ends[2] or ends[1]) + 1) if ends else range(0)
        if not 0 < len(some) <= MOST - len(numbers):
            raise ConfigError(
                f"'{text}' is not a list of at most {MOST:,} numbers and ranges. Write, for example, 0,1,5-8."
            )
        numbers += some
    return numbers


def _check(name: str, words: Sequence[str], path: Path) -> None:
    """Parses a step's arguments as its command does."""
    try:
        load(name).make_context(name, list(words))
    except ImportError as error:
        raise ConfigError(
            f"{path}: the step '{name}' is not a command. Choose one that slim-rl --help lists."
        ) from error
    except UsageError as error:
        line = shlex.join(["slim-rl", *name.split(), *words])
        raise ConfigError(f"{path}: the step '{line}' is invalid: {error.format_message()}") from error


def _texts(value: Any) -> list[str]:
    """Returns one or several values as texts, one per number of their ranges."""
    values = value if isinstance(value, list) else [value]
    return [text for each in values for text in _expanded(str(each))]


def _expanded(text: str) -> Iterator[str]:
    if not (ranges := _RANGES.search(text)):
        yield text
        return
    for number in numbers_of(ranges[1]):
        yield from _expanded(f"{text[: ranges.start()]}{number}{text[ranges.end() :]}")


def _after(options: Mapping[str, Any]) -> list[str]:
    flags = _texts(options.get("after") or [])
    return ["--", *flags] if flags else []


def _matching(text: str) -> list[str]:
    return sorted(map(str, Path().glob(text))) or [text] if "*" in text else [text]


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# -- processes ---------------------------------------------------------------------------------------------------------


def play(step: Step) -> None:
    """Runs a step's processes, each after those it needs; a signal that ends this process ends them too.

    An arm's run writes to <output_dir>/<run>.out, any other command to the terminal.

    Raises:
        SlimError: some failed, or need one that did; raised once the others have ended.
    """
    names = {run.name for run in step.runs}  # a log of any other run is there
    waiting, codes = list(step.runs), dict[str, int]()
    live: dict[str, tuple[subprocess.Popen[bytes], ExitStack]] = {}
    with (
        signals_end_the_run(),
        ExitStack() as all_live,
        tqdm(total=len(names), desc="runs", unit="run", disable=None if len(names) > 1 else True) as bar,
    ):
        try:
            while (
                ready := [run for run in waiting if not any(codes.get(each, 1) for each in names & run.needs)]
            ) or live:
                for run in ready[: step.jobs - len(live)]:
                    waiting.remove(run)
                    stack = all_live.enter_context(ExitStack())
                    child = running(run.command, STOP_SECONDS, **_output(run, stack))
                    live[run.name] = stack.enter_context(child), stack
                time.sleep(POLL_SECONDS)
                for name, (process, stack) in list(live.items()):
                    if (code := process.poll()) is not None:
                        codes[name] = code
                        stack.close()
                        del live[name]
                        bar.update()
        except BaseException:
            for process, _ in live.values():  # terminate all first; `running` then waits for each
                process.terminate()
            raise
    if failed := [run for run in step.runs if codes.get(run.name, 1)]:
        told = f" See {failed[0].config.output_dir}/<run>.out." if failed[0].config else ""
        failures = ", ".join(run.name if run.config else f"'{run}'" for run in failed)
        raise SlimError(f"Failed: {failures}.{told} Fix the cause, and run the same command again to resume there.")


def _output(run: Run, stack: ExitStack) -> dict[str, Any]:
    if run.config is None:
        return {}
    run.config.output_dir.mkdir(parents=True, exist_ok=True)
    out = stack.enter_context((run.config.output_dir / f"{run.name}.out").open("ab"))
    return {"stdout": out, "stderr": subprocess.STDOUT}
