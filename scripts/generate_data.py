#!/usr/bin/env python
"""Writes a games file: one JSON line (or parquet row) per game. The same as ``slim-rl generate``.

python scripts/generate_data.py --num_games 1000                               data/games.jsonl, and all else as configs/matching.yaml
python scripts/generate_data.py --num_games 1000 --output data/dialop.jsonl    one file, as DialOp deals them
"""

import sys

from slim_rl.cli import main

if __name__ == "__main__":
    main(["generate", *sys.argv[1:]])
