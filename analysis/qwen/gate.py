"""Gate before training: whether a start plays the game well enough that training can teach it to ask.

    python analysis/qwen/gate.py logs/qwen/gate

Reads the logs of `slim-rl evaluate`, writes gate.json to the folder `--output`, and exits with 1 if a number is outside its bounds. The
bounds were committed before the gate was first run.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slim_rl import provenance
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, Turn
from slim_rl.errors import DataError, SlimError
from slim_rl.files import write_atomically
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import state_of
from slim_rl.statistics import SHARE, Estimate, clustered_mean

GAMES = 200
BOUNDS = {  # lowest and highest share
    "agreed": (0.98, 1.0),
    "on_board": (0.95, 1.0),
    "asks": (0.15, 0.50),
}
TITLES = {
    "agreed": "games agreed",
    "on_board": "messages that ask about one pair on the board, both names written in full",
    "asks": "games with a question",
}


def gate(dialogues: Sequence[Dialogue]) -> dict[str, Estimate]:
    """Returns the shares that the gate bounds, by name, with 95% intervals clustered by game; NaN if there are no messages."""
    found: dict[str, list[tuple[str, bool]]] = {name: [] for name in BOUNDS}
    for dialogue in dialogues:
        state = state_of(dialogue.game_state)
        if state is None:
            raise DataError(f"The dialogue {dialogue.id} is not one of the matching game.")
        messages = [turn for turn in dialogue.turns if turn.role == "policy" and turn.text.startswith("[message]")]
        found["agreed"].append((dialogue.game_id, bool(measures(dialogue)["agreed"])))
        found["asks"].append((dialogue.game_id, float(measures(dialogue)["questions"]) > 0))
        found["on_board"] += [(dialogue.game_id, names_a_pair(turn, state.roster)) for turn in messages]
    return {
        name: clustered_mean([float(holds) for _, holds in pairs], [game for game, _ in pairs], SHARE)
        for name, pairs in found.items()
    }


def passes(name: str, share: Estimate) -> bool:
    """Returns True if a share lies within its bounds."""
    lowest, highest = BOUNDS[name]
    return bool(lowest <= share.value <= highest)


def names_a_pair(turn: Turn, roster: Roster) -> bool:
    """Returns True if a message asks about one pair and has both its names as the board writes them."""
    pairs = turn.pairs or []
    return len(pairs) == 1 and all(name in turn.text for name in roster.names(pairs[0]))  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, help="folder of the dialogue logs")
    parser.add_argument("--output", type=Path, default=Path("analysis/results/qwen"), help="folder of gate.json")
    given = parser.parse_args(arguments)
    dialogues = list(read_log(given.logs))
    if len(dialogues) != GAMES:
        raise DataError(f"{given.logs} has {len(dialogues)} dialogues; the gate is about {GAMES}.")
    shares = gate(dialogues)
    rewards = [dialogue.reward or 0.0 for dialogue in dialogues]
    numbers: dict[str, Any] = {
        "passes": all(passes(name, share) for name, share in shares.items()),
        "games": len(dialogues),
        "reward": round(sum(rewards) / len(rewards), 4),
        "shares": {
            name: {
                "title": TITLES[name],
                "value": round(share.value, 4),
                "interval": [round(share.low, 4), round(share.high, 4)],
                "of": share.n,
                "required": BOUNDS[name],
                "passes": passes(name, share),
            }
            for name, share in shares.items()
        },
        "settings": dialogues[0].settings,
        "policy": dialogues[0].policy,
        "provenance": provenance.read(given.logs),
    }
    write_atomically(given.output / "gate.json", json.dumps(numbers, indent=1) + "\n")
    for name, share in shares.items():
        lowest, highest = BOUNDS[name]
        print(
            f"{'pass' if passes(name, share) else 'FAIL'}  {TITLES[name]}: {share.value:.1%} of {share.n} "
            f"[{share.low:.1%}, {share.high:.1%}], required {lowest:.0%} to {highest:.0%}"
        )
    return 0 if numbers["passes"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SlimError as error:
        sys.exit(f"slim-rl: {error}")
