"""Page of an experiment as Markdown, for a README."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slim_rl.analysis.page import Page, Section
from slim_rl.analysis.tables import Table
from slim_rl.formats import DASH


def as_markdown(page: Page) -> str:
    """Returns the page: answer, origin, hand-written part, and then the sections."""
    parts = [f"# {page.title}", "\n".join(f"- {sentence}" for sentence in page.sentences)]
    parts += [_section(page, section) for section in page.sections if not section.heading]
    parts += [page.origin, page.text.strip(), *page.warnings, page.method]
    parts += [_section(page, section) for section in page.sections if section.heading]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(page: Page, section: Section) -> str:
    drawn = [page.pictures[name] for name in section.plots if name in page.pictures]
    parts = [f"![{each.caption}]({each.name}.png)\n\n{each.caption}" for each in drawn]
    parts += [f"{_table(table)}\n\n{table.caption}" for table in section.tables if table.rows]
    return "\n\n".join(parts)


def _table(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(map(_cell, cells)) + " |"

    rule = ["---:" if number else "---" for number in table.heads.values()]
    rows = [[row.get(head, DASH) for head in table.heads] for row in table.all_rows]
    return "\n".join(map(line, [list(table.heads), rule, *rows]))


def _cell(cell: str) -> str:
    return re.sub(r"<(?=[A-Za-z/!])", "&lt;", " ".join(cell.split())).replace("|", "\\|").replace("[", "\\[")
