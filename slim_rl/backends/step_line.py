"""Line that the terminal shows per training step, the same for every trainer."""

from collections.abc import Mapping
from typing import Any

from slim_rl.dialogue.measures import Place, shown_in

_USUAL = ("agreed", "finished")  # ends of a game that was played, with proposals or without
# name in the metrics, name on the line, format
_TRAINED, _KL = ("train_reward", "train reward", ".3f"), ("kl", "kl", ".3f")


def step_line(step: int, logs: Mapping[str, Any], width: int = 80, played: str = "") -> str:
    """Formats a step's main measures as one line of at most `width` characters.

    Stop reasons are shown if they are unusual. All measures are in `metrics.jsonl`.

    Args:
        played: what was played, if not the step's own games.
    """
    first, last = (
        [f"{label} {logs[name]:{form}}" for name, label, form in some if logs.get(name) is not None]
        for some in (_entries("step"), [_TRAINED, *_entries("step end"), _KL])
    )
    stops = {name.removeprefix("stop/"): logs[name] for name in sorted(logs) if name.startswith("stop/")}
    unusual = [f"{reason} {share:.0%}" for reason, share in stops.items() if share and reason not in _USUAL]
    shown = [*first, *unusual, *last]
    line = f"step {step:>4}{played and f', {played}'}: " + shown.pop(0)
    for part in shown:
        if len(line) + len(", ") + len(part) > width:
            break
        line += f", {part}"
    return line


def _entries(place: Place) -> list[tuple[str, str, str]]:
    """Lists the measures of the line: name, short name, format."""
    return [
        (each.name, each.brief or each.name, ".0%" if each.share else ".3f" if each.span == 1 else ".2f")
        for each in shown_in(place)
    ]
