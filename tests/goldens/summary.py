"""Every number of summary.json, from a small log that lies beside this file: two arms of one seed, trained for two steps each.

The log was written by `python -m tests.goldens.summary`, once: its lines are real dialogues of data/warmstart.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.goldens import HERE
from tests.goldens.first_steps import train_steps
from tests.paths import ROOT

LOGS = HERE / "dialogues"
# Of the machine, the moment or the code's version; and words, which are not what a golden is for.
LEFT_OUT = ("version", "command", "logs", "files", "provenance", "warnings", "measures", "question_kinds", "partners")


def figures() -> dict[str, Any]:
    """Computes summary.json of the committed log."""
    from slim_rl.analysis import analyze
    from slim_rl.lab import sections  # noqa: F401  as the command registers them

    blank = patch("slim_rl.analysis.page.to_bytes", lambda figure, form: b"<svg/>")  # takes most of the time
    with blank, tempfile.TemporaryDirectory() as folder:
        results = analyze([LOGS], folder).results
    return {key: value for key, value in results.items() if key not in LEFT_OUT}


def main() -> None:
    """Plays the committed log anew."""
    shutil.rmtree(LOGS, ignore_errors=True)
    for arm, changes in {"shy": [], "mute": ["partner.kind=mute", "arm=mute"]}.items():
        with tempfile.TemporaryDirectory() as folder:
            logs = train_steps(Path(folder), f"name={arm}", *changes)
            (LOGS / arm).mkdir(parents=True)
            for file in sorted(logs.glob("*.jsonl")):
                (LOGS / arm / file.name).write_text(file.read_text().replace(f"{ROOT}/", ""))


if __name__ == "__main__":
    main()
