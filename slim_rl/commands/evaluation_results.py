"""Results of `slim-rl evaluate`: the table on the screen, and table.txt, cells.csv and cells.json in the output folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
from rich.console import Console

from slim_rl import provenance
from slim_rl.analysis.cells import measured_cells, reliability_of_cells
from slim_rl.analysis.terminal_tables import cells_table, compared_sentences
from slim_rl.commands.cells import notes
from slim_rl.commands.options import game_option
from slim_rl.commands.screen import printable
from slim_rl.config import Config
from slim_rl.dialogue.measures import shown_in
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.files import write_atomically
from slim_rl.formats import count
from slim_rl.lab.gap_tables import gap_of_cells, gap_table

MOST_PAIRS = 8  # compared pairs of cells on the screen
_FILES = ("table.txt", "cells.csv", "cells.json")


def print_results(
    config: Config,
    played: Mapping[str, Sequence[Dialogue]],
    output: Path,
    num_games: int,
    lines: Mapping[str, Any],
    success: float | None,
) -> None:
    """Writes the files, and prints the table, the differences between cells and the reference lines.

    Files that cover more dialogues of a cell are left unchanged.

    Args:
        played: dialogues per cell.
        lines: reference lines (`analysis.references`).
        success: reward from which a dialogue is a success in pass^k; None: an agreed one is.
    """
    compared = compared_sentences(played)
    sentences = ["Differences, later minus earlier cell:"] if compared else []
    sentences += compared[:MOST_PAIRS]
    if len(compared) > MOST_PAIRS:
        sentences.append(
            f"{len(compared) - MOST_PAIRS} more pairs: slim-rl analyze {output}{game_option(config.environment)}"
        )
    sentences += notes(played)
    for line in lines.values():
        reward = line["reward"]
        sentences.append(f"{line['about']}: reward {reward['value']:.3f} [{reward['low']:.3f}, {reward['high']:.3f}]")
    price = make_training_reward(config).question_price
    table = cells_table(played, f"{num_games} held-out games", success)
    gap = gap_table(played, price)

    def show(target: Console) -> None:
        target.print(table)
        if gap is not None:
            target.print(gap)
        for sentence in sentences:
            target.print(printable(sentence), markup=False, highlight=False)

    console = Console()
    if more := _more_before(output, played):
        show(console)
        text = (
            f"{', '.join(_FILES)} in {output} are unchanged, because they cover {count(more, 'dialogue')} per cell. Choose another --output to "
            "write these results."
        )
        console.print(printable(text), markup=False, highlight=False)
        return
    table_text = StringIO()
    show(Console(file=table_text, width=200))
    write_atomically(output / "table.txt", table_text.getvalue())
    _write_numbers(config, played, output, lines, success)
    show(console)  # last: printing fails if the reader of a pipe has gone


def _more_before(output: Path, played: Mapping[str, Sequence[Dialogue]]) -> int:
    """Returns the dialogues per cell in the folder's files, if they cover more than were played now; else 0."""
    try:
        rows = orjson.loads((output / "cells.json").read_bytes())["cells"]
        before = [(row["cell"], int(row["dialogues"])) for row in rows if row["measure"] == "reward"]
    except (OSError, ValueError, LookupError, TypeError):
        return 0
    return max((number for cell, number in before if cell in played and number > len(played[cell])), default=0)


def _write_numbers(
    config: Config,
    played: Mapping[str, Sequence[Dialogue]],
    output: Path,
    lines: Mapping[str, Any],
    success: float | None,
) -> None:
    """Writes cells.csv, one row per cell and measure, and cells.json, which adds the settings and the provenance."""
    price = make_training_reward(config).question_price
    others = measured_cells(played, [measure for measure in shown_in("report") if "table" not in measure.shown])
    numbers = (
        *measured_cells(played),
        *reliability_of_cells(played, success),
        *(number for number in others if number.mean.n),
        *gap_of_cells(played, price),
    )
    rows = [number.as_row() for number in numbers]
    data = {
        "environment": config.environment,
        "game": config.game_settings,
        "question_price": price,
        "seed": config.seed,
        "provenance": provenance.read(output),
        "references": lines,
        "cells": rows,
    }
    write_atomically(output / "cells.csv", pd.DataFrame(rows).to_csv(index=False))
    write_atomically(output / "cells.json", orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))
