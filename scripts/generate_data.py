#!/usr/bin/env python
"""Writes a games file: one JSON line (or parquet row) a game.

    python scripts/generate_data.py --num_games 1000 --output data/games.jsonl

The same as ``slim-rl generate``.
"""

from __future__ import annotations

import argparse
import sys

from slim_rl.commands.generate import generate
from slim_rl.errors import SlimError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num_games", type=int)
    parser.add_argument("--output", help="a .jsonl or .parquet file; replaced if it exists")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--n", type=int, help="reviewers and papers, 2 to 8 with DialOp's names")
    parser.add_argument("--workers", type=int, default=1, help="processes; the games do not depend on it")
    parser.add_argument("--seat", choices=["0", "1", "both"], help="the policy's; both: every other game")
    parser.add_argument("--format", choices=["jsonl", "parquet"], help="as the output's suffix says, if not given")
    parser.add_argument("--hardness", type=float, help="least ratio of the pooled optimum to either solo plan")
    parser.add_argument("--no-scales", dest="scales", action="store_const", const=False, help="show true scores")
    parser.add_argument("--p_observed", type=float, help="chance that a player sees a cell")
    parser.add_argument("--config", help="a YAML file for what is not given here")
    try:
        paths = generate(**vars(parser.parse_args()))
    except SlimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in paths:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
