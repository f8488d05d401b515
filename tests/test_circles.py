"""No file imports one that imports it, by however many steps: what is needed twice stands below both."""

from __future__ import annotations

import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest

grimp = pytest.importorskip("grimp")  # comes with import-linter


def test_no_imports_go_in_a_circle() -> None:
    """Imports within functions, and those for type checkers, count too."""
    graph = grimp.build_graph("slim_rl", exclude_type_checking_imports=False, cache_dir=None)
    # The package itself imports nothing: it names, for type checkers, what it finds when it is asked for.
    modules = graph.modules - {"slim_rl"}
    imports = {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_who_works_for_a_trainer_does_not_import_who_launches_it() -> None:
    graph = grimp.build_graph("slim_rl", cache_dir=None)
    verl = "slim_rl.backends.verl"
    for worker in ("agent_loop", "plugin", "policy", "reward"):
        assert not graph.chain_exists(importer=f"{verl}.{worker}", imported=f"{verl}.launch"), worker


@pytest.mark.parametrize(
    ("code", "others"),
    [
        ("from slim_rl.config import load_config; load_config('matching_local')", r"slim_rl\.(analysis|lab|dialogue)|slim_rl\.games\.matching\.(study|questions|reading|partners)"),
        ("from slim_rl.cli import main; main(['--help'])", "pydantic|yaml|typer|numpy"),
        ("import slim_rl", "pydantic|yaml|typer|numpy"),
    ],
)  # fmt: skip
def test_start_imports_only_what_it_uses(code: str, others: str) -> None:
    words = [sys.executable, "-c", f"{code}; import sys; print('modules', *sys.modules)"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    modules = done.stdout.rpartition("modules ")[2].split()
    assert "slim_rl" in modules
    assert [name for name in modules if re.match(rf"({others}|torch|transformers|pandas|scipy)\b", name)] == []
