"""Pages are what the code is: programs run as they are printed, generated pages are up to date, links and named messages exist."""

import ast
import asyncio
import doctest
import importlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reference_pages import PAGES
from reference_pages.config import SHIPPED
from reference_pages.metrics import BATCH

import slim_rl
from examples.lock import Demonstrator
from slim_rl import Dialogue, RolloutWorker, Turn, View, load_config, load_rows
from slim_rl.config import Config, parse_config
from slim_rl.config.trainers import lookup
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.measures import MEASURES, batch_metrics
from slim_rl.dialogue.record import StopReason, Usage
from slim_rl.games.matching.study.players import Asker
from tests.made import STATE
from tests.paths import ROOT

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(f"docs/{page}.md"), re.M | re.S)


# --- programs

RUN = """
import ast, asyncio, contextlib, io, json, os, sys
from slim_rl.analysis import page
page.to_bytes = lambda figure, form: b"<svg/>"  # printing the figures takes most of a report's time
printed = []
for folder, sources in json.load(sys.stdin):
    os.chdir(folder)
    names = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for source in sources:
            if asyncio.iscoroutine(result := eval(compile(source, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)):
                asyncio.run(result)
    printed.append(out.getvalue())
print(json.dumps([*printed, sorted({"datasets", "openai", "torch", "transformers", "trl", "verl"} & set(sys.modules))]))
"""


def test_programs_run_and_print_what_they_are_shown_with(tmp_path: Path) -> None:
    """The notebook and the first program of the page on Python, one after the other in a process without torch."""
    cells = [each for each in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if each["cell_type"] == "code"]
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    sources = [
        (NOTEBOOK.parent, ["".join(cell["source"]) for cell in cells]),
        (tmp_path, blocks("reference/python-api")[:1]),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "TMPDIR": str(tmp_path)}
    given, words = json.dumps(sources, default=str), [sys.executable, "-c", RUN]
    done = subprocess.run(words, input=given, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    notebook, quick_start, loaded = json.loads(done.stdout.splitlines()[-1])
    outputs = [out for cell in cells for out in cell["outputs"]]
    assert notebook == "".join("".join(out["text"]) for out in outputs if "text" in out)
    assert any("image/png" in out.get("data", {}) for out in outputs) and NOTEBOOK.stat().st_size < 60_000
    played, report = quick_start.splitlines()
    results = ast.literal_eval(played)
    assert len(results) == 3 and all(0 <= reward <= 1 for reward, _ in results) and loaded == []
    assert "<!doctype html>" in (tmp_path / report).read_text(encoding="utf-8")
    assert len((tmp_path / "logs" / "quickstart" / "games.jsonl").read_text().splitlines()) == 50


def test_program_that_trains_runs(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """In this process instead of two."""
    pytest.importorskip("trl")
    monkeypatch.chdir(tmp_path)
    _, code, *_ = blocks("reference/python-api")
    assert "train=small" in code
    exec(code.replace("train=small", 'train=small | {"processes": 1}'), {"__name__": "__main__"})
    assert (tmp_path / capsys.readouterr().out.splitlines()[-1] / "config.json").exists()


@pytest.mark.parametrize(("questions", "new"), [(4, 3), (1, None), (0, 0)])
def test_tutorial_game_rewards_each_new_digit(tmp_path: Path, questions: int, new: int | None) -> None:
    places = [f"data.{split}={tmp_path / split}.jsonl" for split in ("train", "eval")]
    settings = load_config("lock", [*places, "data.num_train=8", "data.num_eval=8"])
    worker = RolloutWorker(settings, None, Demonstrator([0.0] * questions + [1.0]))
    specs = [worker.spec(row, "test", phase="eval") for row in load_rows(settings, "eval")]
    for (dialogue,) in asyncio.run(worker.play_all(specs)):
        annotate(dialogue)
        code, shown = dialogue.game_state["code"], dialogue.game_state["shown"]
        learned = [place for turn in dialogue.turns for (place,) in turn.informative or ()]
        assert [turn.questions for turn in dialogue.turns if turn.seeking] == [["digit"]] * questions
        assert new in (None, len(learned)) and shown not in learned
        right = [digit == 1 or place in (shown, *learned) for place, digit in enumerate(code, 1)]
        assert (dialogue.reward, dialogue.stop_reason) == (sum(right) / 4, StopReason.FINISHED)


def test_tutorial_shows_the_files_as_they_are() -> None:
    page, files = "tutorials/custom-environment", {"python": "examples/lock.py", "yaml": "examples/lock.yaml"}
    shown = [(code, file) for language, file in files.items() for code in blocks(page, language)]
    assert len(shown) == 6 and all(code in text_of(file) for code, file in shown)


def test_partner_of_the_guide_answers_in_the_matching_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, *_ = blocks("how-to/partners")
    (tmp_path / "my_partners.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = load_config("matching_local", ["partner.kind=my_partners.Curt", "partner.args={}"])
    worker = RolloutWorker(settings, None, Asker(2))
    ((dialogue,),) = asyncio.run(worker.play_all([worker.spec(GameRow("g", 0, STATE, []), "test")]))
    annotate(dialogue)
    assert dialogue.stop_reason is StopReason.AGREED
    assert [turn.answered for turn in dialogue.turns if turn.seeking] == [True, True]


def test_api_page_partner_reward_and_environment_work() -> None:
    names: dict[str, Any] = {}
    for code in blocks("reference/environment-api"):
        exec(code, names)
    assert asyncio.run(names["Echo"]().act(View(1, "", "", (), None, 0))).text == "[message] You said: "
    dialogue = Dialogue("a", "g", 0, 0, {}, {}, {}, turns=[Turn("x")] * 3, reward=0.5, stop_reason=StopReason.AGREED)
    assert names["Brief"](load_config("matching_local"))([dialogue], 0).rewards == [pytest.approx(0.47)]
    assert issubclass(names["Squared"], names["MatchingEnv"])


MODULES = ("session", "config", "dialogue.games_file", "dialogue.measures")
MODULES += ("games.matching.study.demonstrations", "games.matching.reading.reader")


def test_examples_of_docstrings_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in MODULES:
        result = doctest.testmod(importlib.import_module(f"slim_rl.{module}"))
        assert result.attempted and not result.failed


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks").glob("bench_*.py")), ids=lambda file: file.stem)
def test_benchmarks_find_their_modules(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folders,) = re.findall(r"bench_\*.*PYTHONPATH=(\S+)", text_of("Makefile"))
    for folder in ("benchmarks", *folders.split(":")):
        monkeypatch.syspath_prepend(ROOT / folder)
    try:
        runpy.run_path(str(file))
    except SystemExit as end:
        assert not end.code, "without slime, it is left out and the next one runs"


# --- names and keys


def test_public_names_are_there_typed_and_on_a_page() -> None:
    tree = ast.parse(text_of("slim_rl/__init__.pyi"))
    imported = {one.name: each.module for each in tree.body if isinstance(each, ast.ImportFrom) for one in each.names}
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("python-*.md"))
    assert sorted(imported) == slim_rl.__all__ == sorted(re.findall(r"^::: slim_rl\.(\w+)$", pages, re.M))
    for name, module in imported.items():
        assert getattr(slim_rl, name) is getattr(sys.modules[str(module)], name)
    assert set(slim_rl.__all__) <= set(dir(slim_rl))
    with pytest.raises(AttributeError, match="no attribute 'reviewer'"):
        _ = slim_rl.reviewer  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", PAGES)
def test_generated_page_is_up_to_date(path: str) -> None:
    assert text_of(path) == PAGES[path](), "write it again: PYTHONPATH=tools python -m reference_pages"


def test_matching_yaml_is_the_defaults_but_for_what_is_shipped() -> None:
    shipped = [f"{name}={json.dumps(value, default=str)}" for name, (value, _) in SHIPPED.items()]
    assert load_config("matching") == parse_config({}, shipped)
    said = " ".join(line.partition("# ")[2] for line in text_of("configs/matching.yaml").splitlines())
    assert all(lookup(Config(), name) != value and why in said for name, (value, why) in SHIPPED.items())


def test_metrics_of_pages_are_those_of_a_step() -> None:
    """Of a step with a failed game and calls to an endpoint."""
    turns = [Turn("x", role=role, usage=Usage(calls=1, input_tokens=1)) for role in ("policy", "partner")]
    played = Dialogue("a", "g", 0, 0, {}, {}, {}, turns=turns, stop_reason=StopReason.AGREED, reward=0.5)
    failed = Dialogue("b", "g", 0, 0, {}, {}, {}, stop_reason=StopReason.PARTNER_FAILED)
    logged = set(batch_metrics([played, failed]))
    names = {re.sub(r"^(stop|failure)/.*", r"\1/{}", name) for name in logged}
    assert {"stop/{}", "failure/{}", "cost_usd", "partner_seconds_p50"} <= names
    assert {name for name in names if name not in BATCH and not name.startswith("questions/")} <= set(MEASURES)
    guides = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "how-to").glob("*.md")}
    table = guides["watch-a-run"].partition("| metric | read it as |\n")[2].partition("\n\n")[0]
    heads = [name for line in table.splitlines() for name in re.findall(r"`([\w/]+)`", line.split("|")[1])]
    ours = re.findall(r"`(?:eval/matching/)?dialogue/([\w/]+)`", "".join(guides.values()))
    known = {*logged, *MEASURES, "partner_retries", "train_reward", *(f"stop/{each.value}" for each in StopReason)}
    assert len(heads) > 15 and len(ours) > 5 and {*heads, *ours} <= known


def test_log_format_page_has_every_key_and_reason() -> None:
    rows = re.findall(r"^\| ([^|]*) \|", text_of("docs/reference/log-format.md"), re.M)
    keys = {*Dialogue.__dataclass_fields__, *Turn.__dataclass_fields__} - {"cut"}
    found = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert found == keys | {reason.value for reason in StopReason} | {"format"}


def test_troubleshooting_quotes_messages_of_the_code() -> None:
    files = [path for place in ("slim_rl/**/*.py", "scripts/*.py", "scripts/*.sh") for path in ROOT.glob(place)]
    code = re.sub(r'"\s*\n\s*f?"', "", "".join(path.read_text(encoding="utf-8") for path in files))  # several literals
    heads = re.findall(r"^\| (`[^|]*)\|", text_of("docs/how-to/troubleshooting.md"), re.M)
    others = {"slim-rl: command not found", "Failed to connect to Ray"}  # of the shell and of Ray
    quoted = {message for head in heads for message in re.findall(r"`([^`]+)`", head)} - others
    parts = [part for message in quoted for part in re.split(r" ?… ?|--x", message)]
    assert len(quoted) > 6 and [part for part in parts if part not in code] == []


# --- the README and the site


def test_site_refuses_links_to_nothing_and_fetches_nothing(tmp_path: Path) -> None:
    """A site of two pages by the project's own settings, its navigation left out."""
    pytest.importorskip("mkdocs")
    shutil.copytree(ROOT / "docs" / "assets", tmp_path / "docs" / "assets")
    shutil.copy(ROOT / "docs" / "hooks.py", tmp_path / "docs")
    (tmp_path / "mkdocs.yml").write_text(re.sub(r"^nav:\n.*", "", text_of("mkdocs.yml"), flags=re.M | re.S))
    for name in ("README.md", "SECURITY.md", "CHANGELOG.md", "code.py"):
        (tmp_path / name).write_text("# Here\n")
    wrong = ["none.md", "two.md#nowhere", "../none.py", "img/none.png"]
    right = {"two.md#three": "two.html#three", "../code.py": "../code.py", "../README.md": "../index.html"}
    (tmp_path / "docs" / "one.md").write_text("".join(f"[a]({link})\n\n" for link in [*wrong, *right]))
    (tmp_path / "docs" / "two.md").write_text("# Two\n\n## Three\n")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    built = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode != 0 and built.stderr.count("WARNING -") == len(wrong), built.stderr
    assert all(f"'{link}'" in built.stderr for link in wrong)
    site = tmp_path / "build" / "site"
    page = (site / "docs" / "one.html").read_text(encoding="utf-8")
    for link in right.values():
        assert f'href="{link}"' in page and (site / "docs" / link.partition("#")[0]).is_file()
    scripts = re.findall(r'<script src="([^"]+)"', page)
    assert all((site / "docs" / script).is_file() for script in scripts)
    assert any("iframe-worker" in script for script in scripts), "search needs it where the page is opened from disk"
    assert "three" in (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert not re.search(r'(<script[^>]*src|<link[^>]*stylesheet[^>]*href)="(https?:)?//', page), "of elsewhere"
