"""Terminal view of `slim-rl watch`: the run's state in sentences and small curves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from slim_rl.analysis.live import LiveRun
from slim_rl.analysis.load import read_dialogue
from slim_rl.analysis.viewer import newest
from slim_rl.commands.screen import printable, turn_texts
from slim_rl.dialogue.log import of_line
from slim_rl.dialogue.record import Dialogue
from slim_rl.formats import NOT_MEASURED, plain, words

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 32  # characters of a loss mask


def follow(live: LiveRun, every: float) -> None:
    """Shows the run until Ctrl-C, or once if the output is not a terminal."""
    console = Console()
    if not console.is_terminal:
        live.look(all_of_it=True)
        console.print(screen(live))
        return
    with Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as shown:
        try:
            while True:
                if live.look():
                    shown.update(screen(live), refresh=True)
                time.sleep(every)
        except KeyboardInterrupt:
            pass
    console.print(screen(live))


def screen(live: LiveRun) -> RenderableType:
    """Returns the run's state, its measures over training, and its last dialogue."""
    parts: list[RenderableType] = [Text(printable(sentence)) for sentence in live.sentences()]
    if live.log is not None:
        parts += [
            _curves(arm, curves, live.numbers["measures"]) for arm, curves in live.numbers["curves"].items() if curves
        ]
        (row,) = newest(live.log.frame, 1).itertuples()
        parts += _dialogue(of_line(read_dialogue(live.log, row)))
    return Group(*parts)


def _curves(arm: str, curves: Mapping[str, Any], measures: Mapping[str, Any]) -> Table:
    table = Table(title=Text(printable(words(arm))), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("mean per training step", "first", "last"):
        table.add_column(heading, justify="right" if heading in ("first", "last") else "left")
    table.add_column("over training")
    for name, curve in curves["measures"].items():
        means, share = curve["mean"], measures[name]["share"]
        known = [value for value in means if np.isfinite(value)]
        ends = (plain(known[0], share), plain(known[-1], share)) if known else (NOT_MEASURED, "")
        table.add_row(measures[name]["title"], *ends, sparkline(means))
    return table


def sparkline(values: Sequence[float]) -> str:
    """Returns one bar per value, scaled from the smallest to the largest; a gap for a missing value."""
    known = [value for value in values if np.isfinite(value)]
    low, span = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    heights = [round((len(_BARS) - 1) * (value - low) / span) if span else 0 for value in known]
    bars = iter(heights)
    return "".join(_BARS[next(bars)] if np.isfinite(value) else " " for value in values)


def _dialogue(dialogue: Dialogue) -> Iterator[RenderableType]:
    step = "" if dialogue.step is None else f" · step {dialogue.step}"
    yield Rule(Text(printable(f"the last dialogue: {dialogue.phase}{step} · game {dialogue.game_id}")), align="left")
    yield from turn_texts(dialogue)
    reward = "no reward" if dialogue.reward is None else f"reward {dialogue.reward:.3f}"
    yield Text(printable(f"{dialogue.failure or words(dialogue.stop_reason)}, {reward}"), "bold")
    tokens = dialogue.to_dict(tokens=False)["tokens"]
    if tokens and tokens["response"]:
        yield _mask(dialogue, tokens)


def _mask(dialogue: Dialogue, tokens: Mapping[str, int]) -> Text:
    """Returns the response's loss mask as a bar, filled where tokens are trained."""
    mask = np.zeros(tokens["response"], dtype=bool)
    for turn in dialogue.turns:
        if turn.span:
            mask[slice(*turn.span)] = True
    text = Text("loss mask ", "dim")
    for trained in mask[np.linspace(0, len(mask) - 1, min(_WIDTH, len(mask))).astype(int)]:
        text.append("█" if trained else "░", "green" if trained else "cyan")
    return text.append(f" {tokens['policy']:,} of {tokens['response']:,} response tokens are trained", "dim")
