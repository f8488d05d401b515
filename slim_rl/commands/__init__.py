"""Commands of `slim-rl`, one file per command; those of `slim-rl lab` are in `lab/`.

Each file's `command` is a typer function.
"""

from importlib import import_module
from typing import Any

import typer

UsageError: type[Any] = typer.BadParameter.__mro__[1]  # from click, or from typer's copy of click


def load(name: str) -> Any:
    """Returns the command `name`, such as "lab run", to be called with a list of arguments.

    Option names may use dashes or underscores.
    """
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"token_normalize_func": lambda flag: flag.replace("_", "-")},
    )
    app.command()(import_module(f"{__name__}.{name.replace(' ', '.')}").command)
    return typer.main.get_command(app)
