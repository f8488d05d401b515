"""Pages: sentences, sections of tables and figures, and dialogues, as one HTML file, or without dialogues as Markdown.

Invariants:
    A page is one file, without scripts; its content security policy allows none, and nothing is fetched.
    Everything from a log (names, dialogue text, failure messages) is treated as text: the template escapes it.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markdown_it import MarkdownIt
from markupsafe import Markup

from slim_rl.analysis.dialogues import Game, notes
from slim_rl.analysis.figures import Plot, style, to_bytes
from slim_rl.analysis.tables import Table, markdown_cell
from slim_rl.files import write_atomically
from slim_rl.formats import words

FORMS = ("png", "svg", "pdf")  # file types of figures
_MARKDOWN = MarkdownIt("commonmark", {"html": False})
_TEMPLATES = Environment(
    loader=PackageLoader("slim_rl.analysis", "page"),
    autoescape=select_autoescape(),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"notes": notes, "words": words, "markdown_cell": markdown_cell}


@dataclass(frozen=True, slots=True)
class Section:
    """Part of a page. Without tables that have rows, and without figures, it is left out.

    Attributes:
        heading: heading; "": the section stands with the answer.
        numbers: entries of summary.json, by name.
        tables, plots: tables; and figures by file name, drawn from all numbers of the page.
        folded: whether the section is folded.
    """

    heading: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    plots: Mapping[str, Plot] = field(default_factory=dict)
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Content of a page, from top to bottom.

    Attributes:
        lead, about: line below the title; subject of the sentences.
        sentences: the answer.
        sections: tables and figures.
        pictures: each drawn figure by name, as the data URL of its SVG.
        text: hand-written part, as Markdown.
        games: dialogues to read; `sample` describes them.
        method, origin: how the numbers were computed; logs and command that the page was made from, as Markdown.
        colours: colour of each arm.
        seconds: time after which the page loads itself again; 0: never.
    """

    title: str
    sentences: Sequence[str]
    sections: Sequence[Section]
    pictures: Mapping[str, str]
    origin: str
    method: str
    colours: Mapping[str, str]
    warnings: Sequence[str] = ()
    lead: str = ""
    about: str = ""
    text: str = ""
    sample: str = ""
    games: Sequence[Game] = ()
    seconds: int = 0

    def html(self) -> str:
        return _TEMPLATES.get_template("page.html").render(
            page=self,
            origin=Markup(_MARKDOWN.renderInline(self.origin)),
            text=Markup(_MARKDOWN.render(self.text)),
            palette={words(arm): colour for arm, colour in self.colours.items()},
        )

    def markdown(self) -> str:
        return _TEMPLATES.get_template("page.md").render(page=self)

    def write_tables(self, folder: Path) -> None:
        """Writes each table, folded ones included, as table-N.csv, in the page's order."""
        tables = [table for section in self.sections for table in section.tables if table.rows]
        for number, table in enumerate(tables, 1):
            cells = pd.DataFrame(table.rows, columns=list(table.heads))
            write_atomically(folder / f"table-{number}.csv", cells.to_csv(index=False))


def write_figures(
    folder: Path, sections: Sequence[Section], *numbers: Any, forms: Sequence[str] = ("png", "svg")
) -> dict[str, str]:
    """Draws every figure, writes it to the folder, and returns the drawn ones as data URLs of their SVG.

    Files of an earlier page that are not written now are removed.
    """
    pictures = {}
    plots = {name: plot for section in sections for name, plot in section.plots.items()}
    with style():
        for name, plot in plots.items():
            for form in FORMS:
                (folder / f"{name}.{form}").unlink(missing_ok=True)
            if (figure := plot.draw(*numbers)) is None:
                continue
            svg = to_bytes(figure, "svg")
            for form in forms:
                write_atomically(folder / f"{name}.{form}", svg if form == "svg" else to_bytes(figure, form))
            pictures[name] = "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
    return pictures


def write_numbers(path: Path, numbers: Any) -> None:
    """Writes numbers as JSON; NaN becomes null."""
    write_atomically(path, orjson.dumps(numbers, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))
