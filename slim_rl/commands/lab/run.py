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

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from slim_rl import backends
from slim_rl.commands import load
from slim_rl.commands.options import Backend, Overrides, changes_of, game_option
from slim_rl.commands.screen import printable
from slim_rl.config import Config, load_config, read_yaml
from slim_rl.errors import ConfigError, SlimError, did_you_mean
from slim_rl.lab.experiment.contrasts import load_manifest, manifest_file
from slim_rl.processes import interruptible, python_module, running, signals_end_the_run
from slim_rl.runs import RunFolder

MOST = 1000  # numbers in one list
POLL_SECONDS = 0.1  # between two polls of the processes
STOP_SECONDS = 120.0  # for a process to end, which may have to shut down a cluster
_UsageError: type[Any] = typer.BadParameter.__mro__[1]  # from click, or from typer's copy of click
_RANGES = re.compile(r"\{(\d[\d,-]*)\}")
_LOG = re.compile(r"\{log:(\w+)\}")
_OF_ARMS = ("arms", "seeds", "jobs")
_SPECIAL = ("words", "set", "after", "makes", "by", *_OF_ARMS)


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
    needs: tuple[str, ...] = ()

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


def command(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER | CONFIG", help="folder of an experiment, or its YAML file; or a config", show_default=False
        ),
    ],
    arm: Annotated[list[str] | None, typer.Option(help="arm to train (repeatable)")] = None,
    seeds: Annotated[str | None, typer.Option(help="seeds, such as 0,1,2 or 0-2; of a config 0-2 by default")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="runs at a time")] = None,
    overrides: Overrides = None,
    backend: Backend = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the commands, and stop")] = False,
    extra: Annotated[list[str] | None, typer.Argument(help="trainer's flags of every arm, after --")] = None,
) -> None:
    """Run the steps of an experiment, or train the arms of a config; finished runs are skipped, interrupted ones resume.

    With --arm, --seeds, --set, --backend or flags, only the steps of an experiment that train arms are run, with these.
    """
    changes = changes_of(overrides, backend)
    options = {"arms": arm, "seeds": seeds, "jobs": jobs, "after": extra}
    options = {name: value for name, value in options.items() if value}
    path, arms = manifest_file(what), None
    if path.exists() and isinstance(data := read_yaml(path), dict) and "title" in data:
        manifest, _ = load_manifest(path)
        entries, arms = manifest.steps, manifest.arms
        if options.keys() - {"jobs"} or changes:
            entries = [entry for entry in entries if _trains_arms(entry)]
    else:
        entries = [{"train": {"words": str(what), "seeds": "0-2"}}]
    steps = [step_of(entry, number, path, arms, options, changes) for number, entry in enumerate(entries, 1)]
    for step in steps:
        done = step.makes is not None and step.makes.exists()
        for run in step.runs:
            typer.echo(f"{run}{f'  # {step.makes} exists' if done else ''}")
        if done or dry_run:
            continue
        lacks = next((why for run in step.runs if run.config and (why := backends.missing(run.config))), "")
        if lacks:
            backends.say(f"This is the plan, and nothing is run: {lacks}")
            return
        with interruptible("the same command continues: complete runs are skipped, and the others resume."):
            play(step)
        if of_arms := [run.config for run in step.runs if run.config]:
            for line in conclusion(of_arms):
                typer.echo(printable(line))


# -- from YAML to processes --------------------------------------------------------------------------------------------


def step_of(
    entry: Mapping[str, Any],
    number: int,
    path: Path,
    arms: Mapping[str, Mapping[str, Any]] | None = None,
    changed: Mapping[str, Any] | None = None,
    changes: Sequence[str] = (),
) -> Step:
    """Returns the step of an entry in the YAML. Raises ConfigError if it is malformed, or its command rejects it.

    Args:
        arms: the experiment's arms; None: those of the step's config.
        changed: options that replace those of a step with arms.
        changes: changes of the config of a step with arms, after its own.
    """
    if len(entry) != 1 or not isinstance(options := next(iter(entry.values())), Mapping):
        raise ConfigError(
            f"{path}: step {number} is not one command with its options. Write, for example, evaluate: {{mode: free}}."
        )
    (name,) = entry
    words = [word for text in _texts(options.get("words", [])) for word in _matching(text)]
    settings = [f"{key}={_value(value)}" for key, value in options.get("set", {}).items()]
    if _trains_arms(entry):
        options = {**options, **(changed or {})}
        runs = arms_runs(Path(*words), arms, options, [*settings, *changes])
        return Step(runs, int(options.get("jobs", 1)))
    for option, value in options.items():
        if option not in _SPECIAL and value is not False:
            flag = f"--{option.replace('_', '-')}"
            words += [flag] if value is True else [word for text in _texts(value) for word in (flag, text)]
    words += [word for setting in settings for word in ("--set", setting)]
    if after := _texts(options.get("after", [])):
        words += ["--", *after]
    program, makes = tuple(shlex.split(options.get("by", ""))), options.get("makes")
    if not program:
        _check(name, words, path)
        words = [*name.split(), *words]
    return Step([Run(name, tuple(words), program)], makes=Path(makes) if makes else None)


def arms_runs(
    config: Path, arms: Mapping[str, Mapping[str, Any]] | None, options: Mapping[str, Any], changes: Sequence[str]
) -> list[Run]:
    """Returns the runs of a step with arms, ordered by seed: every arm has one before any has two.

    Raises:
        ConfigError: an arm is unknown or invalid, the backend cannot train it, or arms wait for each other.
    """
    base = load_config(config, changes)
    known = base.arms if arms is None else arms

    def overridden(arm: str, seed: int) -> list[str]:
        if arm not in known:
            raise ConfigError(
                f"There is no arm {arm}. Choose one of {', '.join(known)}{did_you_mean(arm, known) or '.'}"
            )
        own = [f"{key}={json.dumps(value)}" for key, value in known[arm].items()]
        return [*changes, *own, f"name={base.name}-{arm}-s{seed}", f"arm={arm}", f"seed={seed}"]

    def log_folder(seed: int, named: re.Match[str]) -> str:
        return _logs(load_config(config, overridden(named[1], seed)))

    runs, after = [], _texts(options.get("after", []))
    for seed in dict.fromkeys(numbers_of(str(options["seeds"]))):
        for arm in dict.fromkeys(_texts(options.get("arms") or list(known))):
            text = overridden(arm, seed)
            needs = tuple(f"{base.name}-{other}-s{seed}" for change in text for other in _LOG.findall(change))
            own = [_LOG.sub(partial(log_folder, seed), change) for change in text]
            settings = load_config(config, own)  # raises for an invalid key, before anything runs
            backends.check(settings)
            sets = [word for change in own for word in ("--set", change)]
            words = ("train", str(config), *sets, *(("--", *after) if after else ()))
            runs.append(Run(settings.name, words, config=settings, needs=needs))
    check_order(runs)
    return runs


def _logs(config: Config) -> str:
    return str(RunFolder(config).logs.absolute())


def check_order(runs: Sequence[Run]) -> None:
    """Raises ConfigError if runs wait for each other's logs."""
    try:
        TopologicalSorter({run.name: run.needs for run in runs}).prepare()
    except CycleError as error:
        named = ", ".join(dict.fromkeys(error.args[1]))
        raise ConfigError(f"The runs {named} wait for each other's logs. Remove {{log:NAME}} from one.") from error


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


def _trains_arms(entry: Mapping[str, Any]) -> bool:
    return isinstance(options := entry.get("train"), Mapping) and "seeds" in options


def _check(name: str, words: Sequence[str], path: Path) -> None:
    """Parses a step's arguments as its command does."""
    try:
        load(name).make_context(name, list(words))
    except ImportError as error:
        raise ConfigError(
            f"{path}: the step '{name}' is not a command. Choose one that slim-rl --help lists."
        ) from error
    except _UsageError as error:
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


def _matching(text: str) -> list[str]:
    return sorted(map(str, Path().glob(text))) or [text] if "*" in text else [text]


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# -- processes ---------------------------------------------------------------------------------------------------------


def play(step: Step) -> None:
    """Runs a step's processes, each after those it needs; a signal that ends this process ends them too.

    An arm's run writes to <output_dir>/<run>.out, any other command to the terminal.

    Raises:
        SlimError: some failed; raised once the others have ended.
    """
    runs = {run.name: run for run in step.runs}
    order = TopologicalSorter({name: run.needs for name, run in runs.items()})
    order.prepare()
    waiting, codes = list[str](), dict[str, int]()
    live: dict[str, tuple[subprocess.Popen[bytes], ExitStack]] = {}
    with (
        signals_end_the_run(),
        ExitStack() as all_live,
        tqdm(total=len(runs), desc="runs", unit="run", disable=None if len(runs) > 1 else True) as bar,
    ):

        def end(name: str, code: int) -> None:
            codes[name] = code
            order.done(name)
            bar.update(name in runs)

        try:
            while order.is_active():
                waiting += order.get_ready()
                for name in list(waiting):
                    if name not in runs or any(codes[need] for need in runs[name].needs):
                        waiting.remove(name)
                        end(name, int(name in runs))  # what another step makes is there
                    elif len(live) < step.jobs:
                        waiting.remove(name)
                        stack = all_live.enter_context(ExitStack())
                        child = running(runs[name].command, STOP_SECONDS, **_output(runs[name], stack))
                        live[name] = stack.enter_context(child), stack
                for name, (process, stack) in list(live.items()):
                    if (code := process.poll()) is not None:
                        stack.close()
                        del live[name]
                        end(name, code)
                if live:
                    time.sleep(POLL_SECONDS)
        except BaseException:
            for process, _ in live.values():  # terminate all first; `running` then waits for each
                process.terminate()
            raise
    if failed := [run for run in step.runs if codes[run.name]]:
        told = f" See {failed[0].config.output_dir}/<run>.out." if failed[0].config else ""
        names = ", ".join(run.name if run.config else f"'{run}'" for run in failed)
        raise SlimError(f"Failed: {names}.{told} Fix the cause, and run the same command again to resume there.")


def _output(run: Run, stack: ExitStack) -> dict[str, Any]:
    if run.config is None:
        return {}
    run.config.output_dir.mkdir(parents=True, exist_ok=True)
    out = stack.enter_context((run.config.output_dir / f"{run.name}.out").open("ab"))
    return {"stdout": out, "stderr": subprocess.STDOUT}


def conclusion(runs: Sequence[Config]) -> list[str]:
    """Returns sentences on each arm's held-out games before and after training, over its seeds."""
    folders = [Path(_logs(each)) for each in runs]
    game = "".join(dict.fromkeys(game_option(each.environment) for each in runs))
    more = f"Full report, with the differences between arms: slim-rl analyze {' '.join(map(str, folders))}{game}"
    logs = [
        log for folder in folders for log in (sorted(folder.glob("eval*.jsonl")) or sorted(folder.glob("verl-*.jsonl")))
    ]
    if not logs:
        return ["No held-out games were played (train.eval_games is 0), so the arms cannot be compared.", more]
    from slim_rl.analysis.held_out import by_arm, held_out
    from slim_rl.analysis.load import load
    from slim_rl.analysis.verdict import verdicts

    results = verdicts(by_arm(held_out(load(logs).frame), ["questions", "reward"]))
    sentences = [f"{arm['arm']}: {' '.join(arm['sentences'])}" for arm in results]
    return [*sentences, more] if sentences else ["No held-out games were played both before and after training.", more]
