"""Page of the command line, from the typer functions."""

from reference_pages.tables import GENERATED, table
from slim_rl.cli import COMMANDS, LAB
from slim_rl.commands import load

_HEAD = f"""\
# Command line

`--help` after a command prints the same. A config is a YAML file, or the name of one that the package contains, such as `matching_local`.
Every command that takes `--set` changes keys of the config: `--set train.steps=50` ([config keys](config.md)).

{GENERATED}
"""
_LAB = "## slim-rl lab\n\nCommands for experiments: arms, contrasts, reference players and initial policies.\n"


def page() -> str:
    """Returns the page: usage, help and options of every command."""
    parts = [_HEAD, *(line for name in COMMANDS for line in _command(name, "##"))]
    parts += [_LAB, *(line for name in LAB for line in _command(f"lab {name}", "###"))]
    return "\n".join(parts).rstrip() + "\n"


def _command(name: str, level: str) -> list[str]:
    command = load(name)
    context = command.make_context(f"slim-rl {name}", [], resilient_parsing=True)
    usage = context.get_usage().removeprefix("Usage: ")
    records = [each for parameter in command.get_params(context) if (each := parameter.get_help_record(context))]
    rows = [(f"`{names.replace('list[Path]', 'path')}`", text) for names, text in records if names != "--help"]
    return [
        f"{level} slim-rl {name}\n",
        f"```\n{usage}\n```\n",
        f"{(command.help or '').strip()}\n",
        *table(("argument or option", "meaning"), rows),
    ]
