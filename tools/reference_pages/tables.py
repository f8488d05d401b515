"""Markdown of generated pages."""

from collections.abc import Iterable, Sequence

GENERATED = "This page is generated: `PYTHONPATH=tools python -m reference_pages`."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a table, with an empty one after it."""
    lines = [list(head), ["---"] * len(head), *(list(map(_cell, row)) for row in rows)]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
