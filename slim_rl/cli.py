"""`slim-rl`: one command a task, each in its own file in `slim_rl/commands/` that is imported only when it runs.

A command's file holds `command`, the typer function with its options and help, and what it does. Here: their names, and what is
printed when one fails. An error in the input is one sentence on stderr and exit code 1; anything else is a bug and shows
its traceback.
"""

from __future__ import annotations

import ast
import gc
import io
import os
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from slim_rl import __version__, bundled
from slim_rl.errors import SlimError, as_sentence, nearest

ABOUT = "Does a language model learn to ask questions when reinforcement learning makes asking worth it?"
COMMANDS = (
    *("generate", "incentives", "train", "arms", "watch", "evaluate", "bench", "leaderboard", "export", "play", "show"),
    *("analyze", "results", "compare", "dialogues", "audit", "init", "doctor", "convert", "warmstart"),
)


def main(arguments: Sequence[str] | None = None, *, command_line: str | None = None, prefix: str = "slim-rl: ") -> None:
    """Entry point.

    Args:
        arguments: a command's name and its options; None for the process's own.
        command_line: how it was called, for the record, where that was not as `slim-rl`.
        prefix: goes before a sentence on stderr.
    """
    # torch, transformers and TRL are millions of objects that stay: to look for garbage among them again and again takes a fifth of their import
    gc.set_threshold(50_000)
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):  # it is None where a shell closed it
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 has no ±
    try:
        try:
            _answer(arguments, command_line, prefix)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # who reads along has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        raise SystemExit(1) from None


def _answer(arguments: Sequence[str], command_line: str | None, prefix: str) -> None:
    if arguments and arguments[0] == "help":  # `slim-rl help show`, as git has it
        arguments = [*arguments[1:2], "--help"]
    name, rest = (arguments[0], list(arguments[1:])) if arguments else ("--help", [])
    if name in ("--help", "-h"):
        print(_help())
    elif name in ("--version", "-V"):
        print(f"slim-rl {__version__}")
    elif name not in COMMANDS:
        meant = f"did you mean {near}? The" if (near := nearest(name, COMMANDS)) else "the"
        print(f"{prefix}there is no command '{name}'; {meant} commands are {', '.join(COMMANDS)}.", file=sys.stderr)
        raise SystemExit(2)
    else:
        _run(name, rest, command_line or shlex.join(["slim-rl", *arguments]), prefix)


def _run(name: str, options: list[str], command_line: str, prefix: str) -> None:
    from slim_rl.commands import load, screen
    from slim_rl.formats import without_passwords

    screen.show_warnings_as_sentences(prefix)
    try:
        load(name)(options, prog_name=f"slim-rl {name}", obj=without_passwords(command_line))
    except (SlimError, ModuleNotFoundError, OSError) as error:
        sentence = as_sentence(error)
        if sentence is None:
            raise
        print(prefix + screen.printable(without_passwords(sentence)), file=sys.stderr)
        raise SystemExit(1) from None


def about(name: str) -> str:
    """The first line of a command's help, which is read and not imported."""
    source = (Path(__file__).parent / "commands" / f"{name}.py").read_text(encoding="utf-8")
    (command,) = (each for each in ast.parse(source).body if getattr(each, "name", "") == "command")
    return (ast.get_docstring(command) or "").partition("\n")[0]  # type: ignore[arg-type]


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {about(name)}" for name in COMMANDS]
    options = [
        "  --version  Show the version and stop.",
        "  --help     Show this and stop; after a command, its options.",
    ]
    configs = textwrap.wrap(", ".join(bundled.names()), 78, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(
        [
            *("Usage: slim-rl COMMAND [OPTIONS]", "", f"  {ABOUT}", ""),
            *("Commands:", *lines, ""),
            *("Configs, known by name; any other by its path:", *configs, ""),
            *("Options:", *options),
        ]
    )


if __name__ == "__main__":
    main()
