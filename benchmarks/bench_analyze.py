"""Time of an analysis, from log lines to the report: benchmarks/bench_analyze.py [--lines 100000] [--n 8]

Writes a made-up log (five arms, three seeds each), analyses it in a separate process, and prints seconds, processor
seconds, peak memory and the report's size.
"""

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "analysis")]

import synthetic  # noqa: E402


def write_many(path: Path, lines: int, distinct: int = 4000, **settings: Any) -> None:
    """Writes `lines` lines quickly: `distinct` dialogues, repeated with other ids and steps."""
    settings = {
        "arms": tuple(synthetic.ASKS),
        "seeds": 3,
        "n": 8,
        "eval_games": 20,
        "group": 8,
        "games_per_step": 4,
        **settings,
    }
    steps = max(2, math.ceil(distinct / (len(settings["arms"]) * settings["seeds"] * 32)))
    pool = [d.to_dict(tokens=False) for d in synthetic.make_runs(steps=steps, **settings)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for i in range(lines):
            copy, data = divmod(i, len(pool))
            line = pool[data]
            if line["phase"] == "train":
                line = {**line, "id": f"{line['id']}-{copy}", "step": line["step"] + copy * steps}
                line["game_id"] = f"{line['game_id']}-{i // 32}"
            else:
                line = {**line, "id": f"{line['id']}-{copy}"}
            file.write(orjson.dumps(line) + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000, help="dialogues in the log")
    parser.add_argument("--n", type=int, default=8, help="reviewers and papers of a board")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log, plots = Path(folder) / "log.jsonl", Path(folder) / "plots"
        write_many(log, options.lines, n=options.n)
        print(f"log       {options.lines:>12,} dialogues {log.stat().st_size / 1e6:8.0f} MB")
        command = [
            sys.executable,
            str(ROOT / "analysis" / "analyze_questions.py"),
            "--log_dir",
            str(log),
            "--output_dir",
            str(plots),
        ]
        start = time.perf_counter()
        subprocess.run(
            command,
            check=True,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"time      {seconds:12.1f} s, {used.ru_utime + used.ru_stime:.1f} s of one core")
        print(f"memory    {used.ru_maxrss / 1e6:12.2f} GB at its peak")
        print(f"report    {(plots / 'report.html').stat().st_size / 1e6:12.1f} MB")


if __name__ == "__main__":
    main()
