"""The commands of `slim-rl`, one file each, those of `slim-rl lab` in `lab/`: `command` in it is the typer function, with its options and help."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load(name: str) -> Any:
    """The command of that name, such as "lab arms", to be called with a list of options. Words may be joined by dashes or underscores."""
    import typer

    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"token_normalize_func": lambda flag: flag.replace("_", "-")},
    )
    app.command()(import_module(f"{__name__}.{name.replace(' ', '.')}").command)
    return typer.main.get_command(app)
