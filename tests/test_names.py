"""Commands, options, config keys, make targets, dotted paths and files that a page, comment, docstring or message names exist."""

import ast
import io
import json
import re
import subprocess
import tokenize
import typing
from collections.abc import Iterator
from functools import cache

import pytest
from pydantic import BaseModel

from slim_rl.cli import CALLS
from slim_rl.commands import load
from slim_rl.config import Config
from slim_rl.games.matching import MatchingEnv
from tests.fakes.cluster import known_flags
from tests.paths import ROOT

# Preregistered, made by an earlier version, or about other projects
FROZEN = r"analysis/(?:contrasts\.yaml|bench/README|results/|belief/|rescue/)|tests/|slim_rl/config/names|CHANGELOG|.*PREREGISTRATION"
# Options of other programs, of the predecessors, and one that is shown as misspelt
FOREIGN = {
    *("--agent-llm", "--user-llm", "--max-concurrency", "--max-steps", "--model", "--num_games", "--output_dir"),
    *("--num-gpus", "--num-cpus", "--tp", "--level", "--x"),
}
OF_OTHERS = r"(?:slime|verl)\.(?:rollout|utils|trainer|model_merger|__path__)\b|log\.frame\b|data\.(?:max|train_batch)_|.*\.(?:jsonl?|parquet|log)$"  # no keys
OURS = r"(?:slim_rl|examples|benchmarks)(?:\.\w+)+"
TREES = "slim_rl|scripts|docs|configs|examples|tools|tests|environments|benchmarks"
ROOMS = "analysis|backends|commands|config|dialogue|games|lab|partners|policies|statistics"  # of slim_rl
OTHERS_FILES = r"scripts/(?:models/|run-)|tools/convert_|.*\b[A-Z]+\b"  # of slime, and NAME.py
FILE = r"\.(?:py|sh|md|ipynb|yaml|toml|css|png)$"  # suffixes of files in the repository
TARGETS = set(" ".join(re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text("utf-8"), re.M)).split())


@cache
def options_of(command: str) -> set[str]:
    return {option for parameter in load(command).params for option in parameter.opts} | {"--help", "--version"}


@cache
def all_options() -> set[str]:
    """Returns the options of all commands, of slime, and of our scripts and tools."""
    code = "\n".join((ROOT / name).read_text("utf-8") for name in tracked() if name.endswith((".py", ".sh")))
    declared = re.findall(r"""(?:add_argument\(|^ *|\|)["']?(--[a-z][\w-]*)["']?[,)|]""", code, re.M)
    return {*declared, *known_flags(), *FOREIGN}.union(*map(options_of, CALLS))


def is_key(name: str) -> bool:
    """Returns True if a dotted name is a key of the config, or lies in a mapping that takes any."""
    model: type[BaseModel] = Config
    parts = name.split(".")
    for depth, part in enumerate(parts, 1):
        if part not in model.model_fields:
            return False
        if name.startswith(("game.", "warmstart.player.")):
            games = "".join(file.read_text("utf-8") for file in ROOT.glob("examples/**/*.py"))  # their constructors
            models = [MatchingEnv.Settings, MatchingEnv.PlayerSettings]
            return any(parts[-1] in each.model_fields for each in models) or bool(re.search(rf"\b{parts[-1]}\b", games))
        kind = model.model_fields[part].annotation
        kinds = [each for each in (kind, *typing.get_args(kind)) if isinstance(each, type)]
        models = [each for each in kinds if issubclass(each, BaseModel)]
        if not models:
            return depth == len(parts) or bool(re.search("Mapping|dict", str(kind)))
        model = models[0]
    return True


def is_file(name: str) -> bool:
    return any((ROOT / folder / name).exists() for folder in ("", "slim_rl"))


def is_dotted(path: str) -> bool:
    """Returns True if a dotted path is a module, or a name in one."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:end])
        files = [each for each in (base.with_suffix(".py"), *base.glob("__init__.py*")) if each.is_file()]
        if files or base.is_dir():
            return end == len(parts) or any(re.search(rf"\b{parts[end]}\b", file.read_text("utf-8")) for file in files)
    return False


def gone(text: str) -> Iterator[str]:
    """Yields what a text names that does not exist; bare options, make targets and keys are read in code blocks and `spans`.

    A paragraph that names a commit may name what is there.
    """
    text = re.sub(r"(?:.+\n)*.*commit [0-9a-f]{7}.*(?:\n.+)*", "", text.replace("\\\n", " "))
    commands, paths = re.findall(r"slim-rl (lab [a-z]+|[a-z]+)", text), re.findall(rf"(?<![\w./-]){OURS}", text)
    yield from (f"slim-rl {name}" for name in commands if name not in (*CALLS, "lab"))
    yield from (path for path in paths if not re.search(FILE, path) and not is_dotted(path))
    for file in re.findall(rf"(?<![\w./-])(?:{TREES}|{ROOMS})/[\w./-]*\w", text):
        if re.search(FILE, file) and not re.match(OTHERS_FILES, file) and not is_file(file):
            yield file
    spans = re.findall(r"^ *```(\w*)\n(.*?)^ *```|(?<!`)`((?:[^`\n]|\n(?!\n))+)`", text, re.M | re.S)
    for language, block, span in spans:
        if language in ("", "bash", "yaml"):
            yield from (name for line in (block or span).splitlines() for name in gone_in_code(line.strip()))


def gone_in_code(line: str) -> Iterator[str]:
    options = r"(?<![\w'-])--(?!sglang-|container-|env\.)[a-z][\w-]*"
    for command, rest in re.findall(r"slim-rl (lab [a-z]+|[a-z]+)([^|;#]*)", line.partition(" -- ")[0]):
        given = {each.replace("_", "-") for each in re.findall(options, rest)}
        yield from (f"slim-rl {command} {one}" for one in given if command in CALLS and one not in options_of(command))
    if re.match(r"--|(?:\w+=\S* )*scripts/|python \S*train\.py", line):
        yield from set(re.findall(options, line)) - all_options()
    yield from (f"make {each}" for each in re.findall(r"(?:^|&& )make ([a-z][a-z-]*)", line) if each not in TARGETS)
    for key in re.findall(rf"(?<![\w./-])((?:{'|'.join(Config.model_fields)})(?:\.\w+)+)(?![\w(])", line):
        if not re.match(OF_OTHERS, key) and not re.search(FILE, key) and not is_key(key):
            yield key


def written(name: str) -> str:
    """Returns what a file says to people: a page whole; of code its comments, docstrings and messages."""
    text = (ROOT / name).read_text("utf-8")
    if name.endswith(".py"):
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments = [each.string for each in tokens if each.type == tokenize.COMMENT]
        nodes = [each.value for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Constant)]
        return "\n\n".join([*comments, *(each for each in nodes if isinstance(each, str))])
    if name.endswith(".ipynb"):
        return "\n".join(line for cell in json.loads(text)["cells"] for line in [*cell["source"], ""])
    if name.endswith((".sh", "Makefile")):
        return "\n".join(re.findall(r"^#.*", text, re.M))
    return text if name.endswith(".md") else f"```yaml\n{text}```"


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    named = [name for name in listed if name.endswith((".md", ".py", ".sh", ".yaml", ".ipynb", "Makefile"))]
    return [name for name in named if not re.match(FROZEN, name) and (ROOT / name).exists()]


def test_named_things_exist() -> None:
    found = {name: sorted(set(gone(written(name)))) for name in tracked()}
    assert {name: missing for name, missing in found.items() if missing} == {}


GONE = ["`slim-rl watch runs`", "`slim-rl lab bench`", "`slim-rl export a --push`", "`--push`", "`make reference`"]
GONE += ["`log.folder`", "`--set train.exploring_starts=1`", "`game.dealt`", "see docs/cluster.md"]
GONE += ["`scripts/smoke_cluster.sh`", "slim_rl.backends.slime.relauncher", "slim_rl.analysis.report.gone"]


@pytest.mark.parametrize("text", GONE)
def test_gone_things_are_found(text: str) -> None:
    assert list(gone(text))
