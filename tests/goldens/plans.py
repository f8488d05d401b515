"""The commands that `slim-rl lab run` plans for each committed experiment."""

import contextlib
import io
import os
from unittest.mock import patch

from tests.paths import ROOT


def figures() -> dict[str, list[str]]:
    """Computes experiment -> lines of its dry run; one of an earlier version, which is refused, has none."""
    from slim_rl import cli

    found = {}
    with contextlib.chdir(ROOT), patch.dict(os.environ):
        os.environ.pop("RAY_ADDRESS", None)
        for path in sorted((ROOT / "analysis").rglob("experiment.yaml")):
            out = io.StringIO()
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(io.StringIO()),
                contextlib.suppress(SystemExit),
            ):
                cli.main(["lab", "run", str(path.parent.relative_to(ROOT)), "--dry-run"])
            lines = out.getvalue().replace(str(ROOT), "ROOT").splitlines()
            found[str(path.parent.relative_to(ROOT))] = [
                line.partition("  # ")[0] for line in lines
            ]  # not what is there
    return found
