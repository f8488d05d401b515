"""The notebook runs, without torch, and prints what it is saved with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"
RUN = """
import ast, asyncio, contextlib, io, json, sys
names, printed = {"__name__": "__main__"}, []
for source in json.load(sys.stdin):
    code = compile(source, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if asyncio.iscoroutine(result := eval(code, names)):
            asyncio.run(result)
    printed.append(out.getvalue())
print(json.dumps([printed, sorted({"torch", "transformers", "openai"} & set(sys.modules))]))
"""


def test_the_notebook_runs_and_prints_what_it_is_saved_with(tmp_path: Path) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    saved = ["".join("".join(out["text"]) for out in cell["outputs"] if "text" in out) for cell in cells]
    sources = json.dumps(["".join(cell["source"]) for cell in cells])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=sources, cwd=NOTEBOOK.parent, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    printed, loaded = json.loads(done.stdout.splitlines()[-1])
    assert printed == saved
    assert loaded == []


def test_the_notebook_is_small_and_has_its_plot() -> None:
    assert NOTEBOOK.stat().st_size < 60_000
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert any("image/png" in out.get("data", {}) for cell in cells for out in cell.get("outputs", ()))
