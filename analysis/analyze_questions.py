"""Draws figures and a report from dialogue logs: analysis/analyze_questions.py --log_dir logs/ --output_dir plots/"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from slim_rl.analysis import MAX_DIALOGUES, MAX_DIALOGUES_HELP, analyze
from slim_rl.errors import SlimError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log_dir", type=Path, nargs="+", required=True, help="folders with *.jsonl dialogue logs")
    parser.add_argument("--output_dir", type=Path, required=True, help="where report.html and the rest are written")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstraps and of the dialogues shown")
    parser.add_argument("--max_dialogues", type=int, default=MAX_DIALOGUES, help=MAX_DIALOGUES_HELP)
    parser.add_argument("--references", type=Path, help="DialOp's optimization.jsonl, for a line at human reward")
    parser.add_argument("--tokenizer", type=Path, help="model folder, to show logged token ids as text")
    options = parser.parse_args(arguments)
    command = shlex.join(["analysis/analyze_questions.py", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        summary = analyze(
            options.log_dir,
            options.output_dir,
            seed=options.seed,
            max_dialogues=options.max_dialogues,
            references=options.references,
            tokenizer=options.tokenizer,
            command=command,
        )
    except SlimError as error:
        print(error, file=sys.stderr)
        return 1
    counts = summary.results["counts"]
    print(f"{counts['dialogues']:,} dialogues of {counts['games']:,} games: {summary.report}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
