"""`slim-rl`: names of the commands, and errors of the one that runs.

Each command is a file in `slim_rl/commands/`, or in `slim_rl/commands/lab/` for `slim-rl lab`, and is imported only when it runs.
Its function `command` has the options and help (typer). An error in the input is one sentence on stderr and exit code 1; any other
error is a bug and shows its traceback.
"""

from __future__ import annotations

import ast
import gc
import io
import os
import shlex
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from slim_rl import __version__, bundled
from slim_rl.errors import SlimError, as_sentence, nearest

ABOUT = "Does a language model learn to ask questions when reinforcement learning makes asking worth it?"
COMMANDS = ("generate", "train", "watch", "evaluate", "export", "play", "show", "analyze", "doctor")
ABOUT_LAB = (
    "What experiments add to runs and logs: arms, controls, contrasts, reference players, benchmarks and start models."
)
LAB = (
    *(
        "init",
        "run",
        "page",
        "arms",
        "compare",
        "incentives",
        "warmstart",
        "bench",
        "leaderboard",
        "audit",
        "dialogues",
    ),
    "convert",
)
CALLS = (*COMMANDS, *(f"lab {name}" for name in LAB))
FORMER = {"lab results": "lab page"}


def main(arguments: Sequence[str] | None = None, *, command_line: str | None = None, prefix: str = "slim-rl: ") -> None:
    """Runs one command.

    Args:
        arguments: name of a command and its options; None: those of the process.
        command_line: command line for the record; None: `slim-rl` with the arguments.
        prefix: start of a sentence on stderr.
    """
    # Importing torch, transformers and TRL makes millions of lasting objects; collecting garbage among them is a fifth of that time
    gc.set_threshold(50_000)
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):  # it is None where a shell closed it
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 has no ±
    if sys.stderr is None or not sys.stderr.isatty():
        os.environ.setdefault("TQDM_MININTERVAL", "10")  # seconds; a file would fill with progress bars
    try:
        try:
            _answer(arguments, command_line, prefix)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        raise SystemExit(1) from None


def _answer(arguments: Sequence[str], command_line: str | None, prefix: str) -> None:
    if arguments and arguments[0] == "help":  # `slim-rl help show`, as git has it
        arguments = [*arguments[1:], "--help"]
    lab = list(arguments[:1]) == ["lab"]
    words = list(arguments[1:] if lab else arguments) or ["--help"]
    name = f"lab {words[0]}" if lab else words[0]
    name = FORMER.get(name, name)
    if words[0] in ("--help", "-h"):
        print(_lab_help() if lab else _help())
    elif name in ("--version", "-V"):
        print(f"slim-rl {__version__}")
    elif name not in CALLS:
        near = f"lab {name}" if name in LAB else nearest(name, CALLS)
        meant = f"did you mean {near}? The" if near else "the"
        known = ", ".join(LAB if lab else (*COMMANDS, "lab"))
        print(f"{prefix}there is no command '{name}'; {meant} commands are {known}.", file=sys.stderr)
        raise SystemExit(2)
    else:
        _run(name, words[1:], command_line or shlex.join(["slim-rl", *arguments]), prefix)


def _run(name: str, options: list[str], command_line: str, prefix: str) -> None:
    from slim_rl.commands import load, screen
    from slim_rl.formats import without_passwords

    screen.show_warnings_as_sentences(prefix)
    screen.remember_config(options)
    try:
        load(name)(options, prog_name=f"slim-rl {name}", obj=without_passwords(command_line))
    except (SlimError, ModuleNotFoundError, OSError) as error:
        sentence = as_sentence(error)
        if sentence is None:
            raise
        print(prefix + screen.printable(without_passwords(sentence)), file=sys.stderr)
        raise SystemExit(1) from None


def about(name: str) -> str:
    """Returns the first line of a command's help, read from its file without importing it."""
    source = (Path(__file__).parent / "commands" / f"{name.replace(' ', '/')}.py").read_text(encoding="utf-8")
    (command,) = (each for each in ast.parse(source).body if getattr(each, "name", "") == "command")
    return (ast.get_docstring(command) or "").partition("\n")[0]  # type: ignore[arg-type]


def _help() -> str:
    configs = textwrap.wrap(", ".join(bundled.names()), 78, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(
        [
            *("Usage: slim-rl COMMAND [OPTIONS]", "", f"  {ABOUT}", ""),
            *("Commands:", *_listed({name: about(name) for name in COMMANDS} | {"lab": ABOUT_LAB}), ""),
            *("Configs, known by name; any other by its path:", *configs, ""),
            *("Options:", "  --version  Show the version and stop."),
            "  --help     Show this and stop; after a command, its options.",
        ]
    )


def _lab_help() -> str:
    listed = _listed({name: about(f"lab {name}") for name in LAB})
    return "\n".join(["Usage: slim-rl lab COMMAND [OPTIONS]", "", f"  {ABOUT_LAB}", "", "Commands:", *listed])


def _listed(commands: Mapping[str, str]) -> list[str]:
    width = max(map(len, commands))
    return [f"  {name:<{width}}  {what}" for name, what in commands.items()]


if __name__ == "__main__":
    main()
