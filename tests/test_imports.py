"""Imports: none goes in a circle, a start loads only what it uses, and examples use public names."""

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest

import slim_rl
from tests.paths import ROOT

HEAVY = "torch|transformers|trl|verl|slime|sglang|openai|matplotlib|ray|pandas|scipy"
ROOMS = r"slim_rl\.(analysis|lab|dialogue)|slim_rl\.games\.matching\.(study|questions|reading|partners)"


def test_no_imports_go_in_a_circle() -> None:
    """Imports within functions, and those for type checkers, count too."""
    grimp = pytest.importorskip("grimp")  # comes with import-linter
    graph = grimp.build_graph("slim_rl", exclude_type_checking_imports=False, cache_dir=None)
    # The package itself imports nothing: it names, for type checkers, what it finds when it is asked for.
    modules = graph.modules - {"slim_rl"}
    imports = {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
    verl = "slim_rl.backends.verl"
    for worker in ("agent_loop", "plugin", "policy", "reward"):
        assert not graph.chain_exists(importer=f"{verl}.{worker}", imported=f"{verl}.launch"), worker


@pytest.mark.parametrize(
    ("code", "others"),
    [
        ("import slim_rl", r"slim_rl\.|pydantic|yaml|typer|numpy"),
        ("from slim_rl.config import Config, load_config; Config(); load_config('matching_local')", ROOMS),
        ("from slim_rl.cli import main; main(['--help'])", r"pydantic|yaml|typer|numpy|slim_rl\.config"),
        ("import slim_rl.games.matching.questions.annotate, slim_rl.partners, slim_rl.backends.slime.launch", HEAVY),
        ("import slim_rl.analysis.report", r"slim_rl\.lab\.\w*gap|torch|transformers"),
        ("import slim_rl, examples.guess_who", "torch|transformers|pandas"),
    ],
)
def test_start_imports_only_what_it_uses(code: str, others: str) -> None:
    words = [sys.executable, "-c", f"{code}; import sys; print('modules', *sys.modules)"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    modules = done.stdout.rpartition("modules ")[2].split()
    assert "slim_rl" in modules
    assert [name for name in modules if re.match(rf"({others}|torch|transformers)\b", name)] == []


@pytest.mark.parametrize("name", ["lock.py", "secret_number.py", "treasure.py", "lying_partner.py", "guess_who/*.py"])
def test_example_games_import_only_public_names(name: str) -> None:
    found: set[str] = set()
    for path in (ROOT / "examples").glob(name):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "slim_rl":
                found |= {alias.name for alias in node.names} if node.module == "slim_rl" else {str(node.module)}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "slim_rl"}
    assert found and found <= set(slim_rl.__all__)


def test_package_imports_no_example() -> None:
    sources = [path.read_text() for path in (ROOT / "slim_rl").rglob("*.py")]
    assert not [text for text in sources if "import examples" in text or "from examples" in text]
