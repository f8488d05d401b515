#!/usr/bin/env python
"""Writes a games file: one JSON line (or parquet row) a game. The same as ``slim-rl generate``.

python scripts/generate_data.py --num_games 1000 --output data/dialop.jsonl                         as DialOp deals them
python scripts/generate_data.py configs/matching.yaml --num_games 1000 --output data/games.jsonl    as a config wants them
"""

import sys

from slim_rl.cli import main

if __name__ == "__main__":
    main(["generate", *sys.argv[1:]], prefix="error: ")
