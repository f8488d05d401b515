"""The commands that `slim-rl lab run` plans for each committed experiment."""

import io
import os
import re
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from unittest.mock import patch

from tests.paths import ROOT


def figures() -> dict[str, list[str]]:
    """Computes experiment -> lines of its dry run; one of an earlier version, which is refused, has none."""
    from slim_rl import cli

    found = {}
    with chdir(ROOT), patch.dict(os.environ, {"RAY_ADDRESS": ""}):
        for path in sorted((ROOT / "analysis").rglob("experiment.yaml")):
            out = io.StringIO()
            with redirect_stdout(out), redirect_stderr(io.StringIO()), suppress(SystemExit):
                cli.main(["lab", "run", str(path.parent.relative_to(ROOT)), "--dry-run"])
            lines = re.sub("  # .* exists", "", out.getvalue())  # not what is there
            found[str(path.parent.relative_to(ROOT))] = lines.replace(str(ROOT), "ROOT").splitlines()
    return found
