"""Terminal tables of the gap to the ideal asker: per cell of an evaluation, and per suite of the benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from slim_rl.analysis.cells import CellNumber, Cells, mean_of
from slim_rl.analysis.terminal_tables import with_error
from slim_rl.analysis.verdict import frame
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import DASH, words
from slim_rl.lab.askers import Askers
from slim_rl.lab.gap import HEADING, LOSSES, of_dialogues
from slim_rl.lab.net_reward import NET_REWARD
from slim_rl.statistics import Estimate, clustered_mean


def gap_of_cells(cells: Cells, price: float | tuple[float, ...], askers: Askers | None = None) -> Iterator[CellNumber]:
    """Yields each cell's net reward and, if the game has an ideal asker, its gap and the parts.

    Args:
        price: question cost of dialogues whose log does not state it.
        askers: cache of solved games; None: a new one.
    """
    default_price = 0.0 if isinstance(price, tuple) else price
    askers = Askers() if askers is None else askers
    for name, dialogues in cells.items():
        played = [dialogue for dialogue in dialogues if not dialogue.failed]
        data = frame(played)
        prices = [default_price if dialogue.price is None else dialogue.price for dialogue in played]
        net = data["reward"].astype(float) - prices * data["questions"].astype(float).fillna(0.0)
        yield CellNumber(name, NET_REWARD, NET_REWARD.title, mean_of(net, data["game_id"], NET_REWARD))
        for loss, values in of_dialogues(played, data, default_price, askers).items():
            yield CellNumber(name, LOSSES[loss], LOSSES[loss].heading, clustered_mean(values, data["game_id"]))


def gap_table(cells: Mapping[str, Sequence[Dialogue]], price: float | tuple[float, ...]) -> Table | None:
    """Returns the gap of each cell and its parts; None if the game has no ideal asker."""
    cost = "question cost of each game" if isinstance(price, tuple) else f"question cost {price:g}"
    title = f"{HEADING}, {cost}"
    table = Table(title=title, caption="±: 95% intervals, over games", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("cell", *(loss.short for loss in LOSSES.values())):
        table.add_column(heading, justify="left" if heading == "cell" else "right", overflow="fold")
    gaps = [number for number in gap_of_cells(cells, price) if number.measure.name in LOSSES]
    for cell in dict.fromkeys(number.cell for number in gaps):
        table.add_row(words(cell), *(with_error(number.mean) for number in gaps if number.cell == cell))
    return table if table.row_count == len(cells) else None


def bench_tables(suites: Mapping[str, Mapping[str, Estimate]], title: str) -> list[Table]:
    """Returns tables of one model's scores (`bench_file.scores`), one row per suite: main measures, and the parts of the gap."""
    main = {
        "net_reward": "net reward",
        "questions": "questions",
        "errors": "refused turns",
        "lost": LOSSES["lost"].short,
    }
    parts = {name: loss.short for name, loss in LOSSES.items() if name not in main}
    return [_bench_table(suites, main, title), _bench_table(suites, parts, HEADING)]


def _bench_table(suites: Mapping[str, Mapping[str, Estimate]], columns: Mapping[str, str], title: str) -> Table:
    caption = "±: 95% intervals, over games"
    table = Table(title=escape(title), caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=0)
    for heading in ("suite", *columns.values()):
        table.add_column(heading, justify="left" if heading == "suite" else "right", overflow="fold")
    for name, numbers in suites.items():
        table.add_row(words(name), *(with_error(numbers[key]) if key in numbers else DASH for key in columns))
    return table
