"""A page: the answer first, then figures, tables and, where it holds them, every dialogue. One file that opens from disk, with everything
in it and nothing fetched; as Markdown the same without the dialogues.

The invariant: everything in a log (names, dialogue text, failure messages) is treated as text. The template escapes all it is
given; the viewer's data is compressed and in base64, which no `</script>` can end; the page's content policy runs the one script it
was made with and nothing else.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from slim_rl.analysis.figure_style import style, to_bytes
from slim_rl.analysis.figures import Plot
from slim_rl.analysis.tables import Table, as_csv, as_latex, as_markdown
from slim_rl.files import write_atomically

SCRIPTS = ("dom.js", "list.js", "board.js", "dialogue.js", "main.js")  # of the viewer: one script, in this order
FORMS = ("png", "svg", "pdf")  # that a figure may have
_TABLE_FORMS = {"csv": as_csv, "tex": as_latex, "md": as_markdown}
RENEWS = "live.js"  # what else a page has that renews itself
_TEMPLATES = Environment(
    loader=PackageLoader("slim_rl.analysis", "page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_MARKDOWN = MarkdownIt("commonmark", {"html": False})


@dataclass(frozen=True, slots=True)
class Card:
    """A measure before and after; `trend` is "gain", "loss" or empty: whether the change is for the better."""

    title: str
    before: str
    after: str
    change: str
    trend: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Drawn figure: as SVG, and beside the page as <name>.png.

    Attributes:
        folded: heading under which the figure is folded; "" if it is open.
        first: whether it stands with the answer.
        alt: text for readers who cannot see it.
    """

    name: str
    svg: str
    caption: str
    wide: bool
    folded: str
    first: bool
    alt: str

    @property
    def address(self) -> str:
        """The figure as an address that a page can hold."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()


@dataclass(frozen=True, slots=True)
class Renewed:
    """A page that asks its server every so many `seconds` whether there is another `version` of it."""

    version: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Page:
    """What stands on a page, from top to bottom.

    Attributes:
        lead: below the title. about: what the sentences are of.
        sentences: the answer; its cards; tables above and below the first figure.
        text: written by hand, as Markdown.
        sections: tables by heading.
        sample: which dialogues the viewer holds; `dialogues`: its data, None for a page without it.
        renewed: how the page renews itself, where it does; None for one that is a file.
        method: how numbers were found. origin: from what and by what the page was made, as Markdown. sources: tables of what was read.
    """

    title: str
    sentences: Sequence[str]
    figures: Sequence[Picture]
    sections: Mapping[str, Sequence[Table]]
    origin: str
    method: str
    warnings: Sequence[str] = ()
    lead: str = ""
    about: str = ""
    cards: Sequence[Card] = ()
    tables_first: Sequence[Table] = ()
    tables: Sequence[Table] = ()
    text: str = ""
    sample: str = ""
    dialogues: Mapping[str, Any] | None = None
    sources: Sequence[Table] = ()
    renewed: Renewed | None = None

    def html(self) -> str:
        folder = files("slim_rl.analysis") / "page"
        names = [*(SCRIPTS if self.dialogues else ()), *([RENEWS] if self.renewed else ())]
        script = "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
        return _TEMPLATES.get_template("page.html").render(
            page=self,
            origin=Markup(_MARKDOWN.renderInline(self.origin)),
            text=Markup(_MARKDOWN.render(self.text)),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            data=packed(self.dialogues) if self.dialogues else "",
        )

    def markdown(self) -> str:
        drawn = [(f"![{each.caption}]({each.name}.png)\n\n{each.caption}", each.first) for each in self.figures]
        parts = [f"# {self.title}", "\n".join(f"- {said}" for said in self.sentences)]
        parts += [text for text, first in drawn if first]
        parts += [self.origin, self.text.strip(), *self.warnings, self.method]
        parts += [f"{as_markdown(table)}\n\n{table.caption}" for table in self._tables() if table.rows]
        return "\n\n".join(part for part in (*parts, *(text for text, first in drawn if not first)) if part) + "\n"

    def write_tables(self, folder: Path, wanted: bool = True) -> None:
        """Writes each table as CSV, LaTeX (booktabs) and Markdown: table-1.csv, table-1.tex, table-1.md, in the page's order and with the rows
        that it folds away, if they are wanted; takes away those that an earlier page left, and this one does not write.
        """
        tables = [table for table in self._tables() if table.rows or table.others] if wanted else []
        for number, table in enumerate(tables, 1):
            unfolded = replace(table, rows=[*table.rows, *table.others])
            for ending, form in _TABLE_FORMS.items():
                write_atomically(folder / f"table-{number}.{ending}", form(unfolded))
        for latex in folder.glob("table-*.tex"):
            three = [latex.with_suffix(f".{ending}") for ending in _TABLE_FORMS]
            place = latex.stem.removeprefix("table-")
            if place.isdecimal() and int(place) > len(tables) and all(path.is_file() for path in three):  # ours
                for path in three:
                    path.unlink()

    def _tables(self) -> list[Table]:
        return [*self.tables_first, *self.tables, *(table for each in self.sections.values() for table in each)]


def packed(data: Any) -> str:
    """Data as it stands in the page (read by `unpacked` of page/dom.js): base64 of compressed JSON, the same for the same data."""
    return base64.b64encode(gzip.compress(orjson.dumps(data), mtime=0)).decode()


def draw_figures(
    plots: Mapping[str, Plot], *numbers: Any, first: str, forms: Sequence[str] = ()
) -> Iterator[tuple[Picture, dict[str, bytes]]]:
    """Every figure that has something to show, and its files by form. `first`: the name of the one that stands with the answer."""
    wanted = sorted({"svg", *forms})
    with style():
        for name, plot in plots.items():
            if (figure := plot.draw(*numbers)) is None:
                continue
            made = dict(zip(wanted, to_bytes(figure, *wanted), strict=True))
            yield (
                Picture(
                    name,
                    made["svg"].decode(),
                    plot.text(*numbers),
                    plot.wide,
                    plot.folded,
                    name == first,
                    plot.alt(*numbers),
                ),
                made,
            )


def write_figures(
    folder: Path, plots: Mapping[str, Plot], *numbers: Any, first: str, forms: Sequence[str]
) -> list[Picture]:
    """Draws every figure, and writes it to the folder; takes away what an earlier page left of those that have nothing to show, or are not
    wanted in that form.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    for picture, made in draw_figures(plots, *numbers, first=first, forms=forms):
        for form in forms:
            write_atomically(folder / f"{picture.name}.{form}", made[form])
        pictures.append(picture)
    drawn = {f"{picture.name}.{form}" for picture in pictures for form in forms}
    for stale in {f"{name}.{form}" for name in plots for form in FORMS} - drawn:
        (folder / stale).unlink(missing_ok=True)
    return pictures


def write_numbers(path: Path, numbers: Any) -> None:
    """Writes them as JSON; NaN becomes null."""
    write_atomically(path, orjson.dumps(numbers, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))
