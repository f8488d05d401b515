"""Time to read one message, per character, from 1 kB to 1 MB: benchmarks/bench_reading.py [--largest 1000000]

Each kind of text is one that a policy might hit on and that a careless pattern reads in quadratic time. Flat or falling numbers
are good; they fall where only the first characters of a message are read.
"""

import argparse
import time
from collections.abc import Callable

from slim_rl.games.matching.actions import parse_action
from slim_rl.games.matching.reading.masking import mask
from slim_rl.games.matching.reading.reader import _read, read
from slim_rl.games.matching.roster import Roster

ROSTER = Roster.default()
PREVIOUS = "[message] I have 62 for Ava Li on BLEU. "
# What a text begins with, and what is repeated after it.
TEXTS = {
    "questions": ("[message] ", "Is he good at BLEU? "),
    "pairs": ("[message] ", "Ava on BLEU and "),
    "no names": ("[message] ", "anyone else "),
    "spaces": ("[message] ", " "),
    "brackets": ("[propose] ", "<br "),
    "spaces in a break": ("[propose] <br", " "),
    "values": ("[message] ", "Ava BLEU 62 "),
    "parentheses": ("[propose] ", "(Ava "),
    "digits": ("[propose] &#", "9"),
    "open tags": ("", "[ message"),
    "lines": ("[message] ", "- Ava\n"),
    "words": ("[message] ", "Avo Blau "),
    "commas": ("[message] ", "so, "),
    "clauses": ("[message] ", "and you have "),
}
READERS: dict[str, Callable[[str], object]] = {
    "parse_action": lambda text: parse_action(text, ROSTER),
    "read": lambda text: read(text, ROSTER, [PREVIOUS + text]),
}


def long_text(kind: str, length: int) -> str:
    """Returns a text of `length` characters that repeats the pattern of `kind`."""
    head, part = TEXTS[kind]
    return (head + part * (length // len(part) + 1))[:length]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=1_000_000, help="characters of the longest text")
    options = parser.parse_args()
    sizes = [size for size in (1_000, 10_000, 30_000, 100_000, 1_000_000) if size <= options.largest]
    print(f"{'ns per character':<32}" + "".join(f"{size:>12,}" for size in sizes))
    for reader, work in READERS.items():
        for kind in TEXTS:
            row = []
            for size in sizes:
                text = long_text(kind, size)
                for cached in (_read, mask):
                    cached.cache_clear()
                start = time.perf_counter()
                work(text)
                row.append(1e9 * (time.perf_counter() - start) / size)
            print(f"{reader:<14}{kind:<18}" + "".join(f"{value:12.0f}" for value in row), flush=True)


if __name__ == "__main__":
    main()
