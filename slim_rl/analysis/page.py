"""HTML and Markdown pages with sentences, figures, tables and, in HTML, a dialogue viewer.

Invariants:
    A page is one file.
    Everything from a log (names, dialogue text, failure messages) is treated as text: the template escapes it.
    The viewer's data is compressed base64, which no `</script>` can end.
    The page's content security policy allows only the script it was made with; nothing is fetched.
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

SCRIPTS = ("dom.js", "list.js", "board.js", "dialogue.js", "main.js")  # parts of the viewer's script, in order
FORMS = ("png", "svg", "pdf")  # file types of figures
_TABLE_FORMS = {"csv": as_csv, "tex": as_latex, "md": as_markdown}
LIVE_SCRIPT = "live.js"  # script of a page that renews itself
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
    """A measure before and after training; `trend` is "gain", "loss" or ""."""

    title: str
    before: str
    after: str
    change: str
    trend: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Drawn figure, as SVG in the page and as <name>.png next to it.

    Attributes:
        folded: heading under which the figure is folded; "" if it is open.
        first: whether the figure is shown with the answer.
        alt: alt text.
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
        """The figure as a data URL."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()


@dataclass(frozen=True, slots=True)
class Renewed:
    """Settings of a page that polls its server every `seconds` for a new `version`."""

    version: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Page:
    """Content of a page, from top to bottom.

    Attributes:
        lead: line below the title.
        about: subject of the sentences.
        sentences, cards: the answer.
        tables_first, tables: tables above and below the first figure.
        text: hand-written part, as Markdown.
        sections: tables by heading.
        sample: description of the dialogues in the viewer.
        dialogues: data of the viewer; None for a page without it.
        renewed: polling of the page; None for a page that is a file.
        method: how the numbers were computed.
        origin: logs and command that the page was made from, as Markdown.
        sources: tables of the files read.
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
        names = [*(SCRIPTS if self.dialogues else ()), *([LIVE_SCRIPT] if self.renewed else ())]
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
        parts = [f"# {self.title}", "\n".join(f"- {sentence}" for sentence in self.sentences)]
        parts += [text for text, first in drawn if first]
        parts += [self.origin, self.text.strip(), *self.warnings, self.method]
        parts += [f"{as_markdown(table)}\n\n{table.caption}" for table in self._tables() if table.rows]
        return "\n\n".join(part for part in (*parts, *(text for text, first in drawn if not first)) if part) + "\n"

    def write_tables(self, folder: Path, wanted: bool = True) -> None:
        """Writes each table, folded rows included, as table-N.csv, .tex (booktabs) and .md, in the page's order.

        Removes such files of an earlier page that this one does not write.

        Args:
            wanted: whether to write any; False: only remove.
        """
        tables = [table for table in self._tables() if table.rows or table.others] if wanted else []
        for number, table in enumerate(tables, 1):
            unfolded = replace(table, rows=[*table.rows, *table.others])
            for ending, form in _TABLE_FORMS.items():
                write_atomically(folder / f"table-{number}.{ending}", form(unfolded))
        for latex in folder.glob("table-*.tex"):
            three = [latex.with_suffix(f".{ending}") for ending in _TABLE_FORMS]
            place = latex.stem.removeprefix("table-")
            if (
                place.isdecimal() and int(place) > len(tables) and all(path.is_file() for path in three)
            ):  # written by us
                for path in three:
                    path.unlink()

    def _tables(self) -> list[Table]:
        return [*self.tables_first, *self.tables, *(table for each in self.sections.values() for table in each)]


def packed(data: Any) -> str:
    """Returns data as base64 of compressed JSON, which `unpacked` of page/dom.js reads; the same for the same data."""
    return base64.b64encode(gzip.compress(orjson.dumps(data), mtime=0)).decode()


def draw_figures(
    plots: Mapping[str, Plot], *numbers: Any, first: str, forms: Sequence[str] = ()
) -> Iterator[tuple[Picture, dict[str, bytes]]]:
    """Yields each non-empty figure with its files by form; `first` names the one shown with the answer."""
    wanted = sorted({"svg", *forms})
    with style():
        for name, plot in plots.items():
            if (figure := plot.draw(*numbers)) is None:
                continue
            contents = dict(zip(wanted, to_bytes(figure, *wanted), strict=True))
            yield (
                Picture(
                    name,
                    contents["svg"].decode(),
                    plot.text(*numbers),
                    plot.wide,
                    plot.folded,
                    name == first,
                    plot.alt(*numbers),
                ),
                contents,
            )


def write_figures(
    folder: Path, plots: Mapping[str, Plot], *numbers: Any, first: str, forms: Sequence[str]
) -> list[Picture]:
    """Draws every figure and writes it to the folder; removes files of an earlier page that are not written now."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    for picture, contents in draw_figures(plots, *numbers, first=first, forms=forms):
        for form in forms:
            write_atomically(folder / f"{picture.name}.{form}", contents[form])
        pictures.append(picture)
    drawn = {f"{picture.name}.{form}" for picture in pictures for form in forms}
    for stale in {f"{name}.{form}" for name in plots for form in FORMS} - drawn:
        (folder / stale).unlink(missing_ok=True)
    return pictures


def write_numbers(path: Path, numbers: Any) -> None:
    """Writes numbers as JSON; NaN becomes null."""
    write_atomically(path, orjson.dumps(numbers, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))
