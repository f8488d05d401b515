"""`slim-rl`: names of the commands, and errors of the one that runs.

Each command is a file in `slim_rl/commands/`, or in `slim_rl/commands/lab/` for `slim-rl lab`, and is imported only when it runs.
Its function `command` has the options and help (typer). An error in the input is one sentence on stderr and exit code 1; any other
error is a bug and shows its traceback.
"""

import gc
import io
import os
import shlex
import sys
from collections.abc import Sequence

from slim_rl import __version__, bundled
from slim_rl.errors import SlimError, as_sentence, nearest

COMMANDS = {
    "generate": "write files of games",
    "train": "train a policy, or resume an interrupted run",
    "evaluate": "play held-out games, and print a table with intervals",
    "analyze": "draw figures and statistics from dialogue logs, and write a report",
    "show": "show dialogues of a log in the terminal",
    "play": "play a game against a partner",
    "export": "write a run's checkpoint as a Hugging Face model",
    "doctor": "check a machine and a config before an expensive run",
}
LAB = {
    "init": "start an experiment's folder",
    "run": "run an experiment, or the arms of a config over seeds",
    "page": "write the page of an experiment",
    "incentives": "measure what a config rewards, by scripted players",
    "warmstart": "make a start model by demonstrations",
    "convert": "convert recorded games",
}
CALLS = (*COMMANDS, *(f"lab {name}" for name in LAB))


def main(arguments: Sequence[str] | None = None, *, command_line: str | None = None) -> None:
    """Runs one command.

    Args:
        arguments: name of a command and its options; None: those of the process.
        command_line: command line for the record; None: `slim-rl` with the arguments.
    """
    # Importing torch, transformers and TRL makes millions of lasting objects; collecting garbage among them is a fifth of that time
    gc.set_threshold(50_000)
    words = list(sys.argv[1:] if arguments is None else arguments)
    command_line = command_line or shlex.join(["slim-rl", *words])
    if isinstance(sys.stdout, io.TextIOWrapper):  # it is None where a shell closed it
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 has no ±
    if sys.stderr is None or not sys.stderr.isatty():
        os.environ.setdefault("TQDM_MININTERVAL", "10")  # seconds; a file would fill with progress bars
    commands = COMMANDS
    if words[:1] == ["lab"]:
        words, commands = words[1:], LAB
    name = words[0] if words else "--help"
    try:
        if name in ("--help", "-h"):
            print(_help(commands))
        elif name in ("--version", "-V"):
            print(f"slim-rl {__version__}")
        elif name in commands:
            _run(f"lab {name}" if commands is LAB else name, words[1:], command_line)
        else:
            near = "lab " + name if name in LAB else nearest(name, [*COMMANDS, *LAB])
            meant = f"did you mean {near}? " if near else ""
            print(f"slim-rl: there is no command '{name}'; {meant}slim-rl --help lists them.", file=sys.stderr)
            raise SystemExit(2)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:  # before a command could say how to go on
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader of the pipe has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        raise SystemExit(1) from None


def _run(name: str, options: list[str], command_line: str) -> None:
    from slim_rl.commands import UsageError, load, screen
    from slim_rl.formats import without_passwords

    screen.show_warnings_as_sentences()
    try:
        obj = without_passwords(command_line)
        code = load(name)(options, prog_name=f"slim-rl {name}", obj=obj, standalone_mode=False)
    except UsageError as error:
        wrong = error.format_message().rstrip(".")
        print(f"slim-rl: {screen.printable(wrong)}; slim-rl {name} --help lists the options.", file=sys.stderr)
        raise SystemExit(2) from None
    except (SlimError, ModuleNotFoundError, OSError) as error:
        sentence = as_sentence(error)
        if sentence is None:
            raise
        print("slim-rl: " + screen.printable(without_passwords(sentence)), file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(code or 0)


def _help(commands: dict[str, str]) -> str:
    listed = [f"  {name:<12}{about}" for name, about in commands.items()]
    if commands is LAB:
        return "\n".join(["Usage: slim-rl lab COMMAND [OPTIONS]", "", *listed])
    more = [
        "  lab         what experiments add: slim-rl lab --help",
        "",
        f"Configs known by name: {', '.join(bundled.names())}.",
    ]
    return "\n".join(
        ["Usage: slim-rl COMMAND [OPTIONS]", "", *listed, *more, "After a command, --help shows its options."]
    )


if __name__ == "__main__":
    main()
