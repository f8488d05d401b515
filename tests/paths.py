"""Where things are, from any test."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HUMAN = ROOT.parent / "shared" / "dialop_human"  # recorded human games, where they lie beside the project
MISSING = str(ROOT / "tests" / "no-such-folder")  # whatever else a machine may have at its root
