"""The gap to the ideal asker in tables: of an evaluation's cells, and of the benchmark's suites."""

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
from slim_rl.lab.gap import LOSSES, of_dialogues
from slim_rl.lab.net_reward import NET_REWARD
from slim_rl.statistics import Estimate, clustered_mean


def ledger_of_cells(
    cells: Cells, price: float | tuple[float, ...], askers: Askers | None = None
) -> Iterator[CellNumber]:
    """Each cell's reward net of the price and, where the game has an ideal asker, its ledger of asking, cell by cell. `price`: of a question,
    where a dialogue does not say its own. `askers`: the games that were solved already.
    """
    usual = 0.0 if isinstance(price, tuple) else price
    askers = Askers() if askers is None else askers
    for name, dialogues in cells.items():
        played = [dialogue for dialogue in dialogues if not dialogue.failed]
        data = frame(played)
        prices = [usual if dialogue.price is None else dialogue.price for dialogue in played]
        net = data["reward"].astype(float) - prices * data["questions"].astype(float).fillna(0.0)
        yield CellNumber(name, NET_REWARD, NET_REWARD.title, mean_of(net, data["game_id"], NET_REWARD))
        for loss, values in of_dialogues(played, data, usual, askers).items():
            yield CellNumber(name, LOSSES[loss], LOSSES[loss].heading, clustered_mean(values, data["game_id"]))


def ledger_table(cells: Mapping[str, Sequence[Dialogue]], price: float | tuple[float, ...]) -> Table | None:
    """The ledger of asking of each cell, at this price a question, or at each game's own of several; None where the game has no ideal
    asker.
    """
    title = f"Below an ideal asker, at {'its game’s price' if isinstance(price, tuple) else f'{price:g}'} a question"
    table = Table(title=title, caption="±: 95% intervals, over games", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("cell", *(loss.short for loss in LOSSES.values())):
        table.add_column(heading, justify="left" if heading == "cell" else "right", overflow="fold")
    lost = [number for number in ledger_of_cells(cells, price) if number.measure.name in LOSSES]
    for cell in dict.fromkeys(number.cell for number in lost):
        table.add_row(words(cell), *(with_error(number.mean) for number in lost if number.cell == cell))
    return table if table.row_count == len(cells) else None


def bench_tables(suites: Mapping[str, Mapping[str, Estimate]], title: str) -> list[Table]:
    """The scores of one model (`bench_file.scores`), a row a suite: what it earned, and where it lost to an ideal asker."""
    chief = {
        "net_reward": "net reward",
        "questions": "questions",
        "errors": "refused turns",
        "lost": LOSSES["lost"].short,
    }
    parts = {name: loss.short for name, loss in LOSSES.items() if name not in chief}
    return [_bench_table(suites, *told) for told in ((chief, title), (parts, "Lost to an ideal asker"))]


def _bench_table(suites: Mapping[str, Mapping[str, Estimate]], columns: Mapping[str, str], title: str) -> Table:
    caption = "±: 95% intervals, over games"
    table = Table(title=escape(title), caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=0)
    for heading in ("suite", *columns.values()):
        table.add_column(heading, justify="left" if heading == "suite" else "right", overflow="fold")
    for name, numbers in suites.items():
        table.add_row(words(name), *(with_error(numbers[key]) if key in numbers else DASH for key in columns))
    return table
