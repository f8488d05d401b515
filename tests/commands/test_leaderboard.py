"""`slim-rl lab leaderboard`: a page of every model, and no figure that is believed unseen."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from slim_rl.errors import SlimError
from slim_rl.lab.bench.file import read
from slim_rl.lab.bench.suites import CANARY, load_suites
from tests.commands.bench_setup import PLAN, bench, content, refused, rewritten, run, suites, written
from tests.paths import ROOT

__all__ = ["bench", "suites"]  # fixtures


@pytest.fixture
def board(suites: Path, tmp_path: Path) -> list[object]:
    """The words that make a page of these suites' results."""
    return ["lab", "leaderboard", "--suites", suites, "--output", tmp_path / "board"]


def test_committed_rows_have_current_versions() -> None:
    versions = {suite.name: suite.version for suite in load_suites()}
    for path in sorted((ROOT / "analysis" / "bench").glob("*.json.gz")):
        stale = [name for name, row in content(path)["suites"].items() if row["version"] != versions[name]]
        assert not stale, f"{path.name}: {stale}; run slim-rl lab run analysis/leaderboard"


def test_a_page_a_table_and_a_file_of_numbers_have_every_model(
    bench: Any, board: list[object], tmp_path: Path, capsys: Any
) -> None:
    files = [bench(name) for name in ("random", "solo", "ideal")]
    run(*board, *files)
    assert re.search(r"tiny free, question cost 0: highest net reward \S+, by ideal\.", capsys.readouterr().out)
    page, text = ((tmp_path / "board" / name).read_text() for name in ("leaderboard.html", "README.md"))
    for name in ("random", "solo", "ideal"):
        assert f">{name}<" in page and f"| {name} |" in text
    assert "Figures" not in page and "refused turns per game" in text and "cost, $" in text and "gap: stopping" in text
    assert CANARY in page
    numbers = pd.read_csv(tmp_path / "board" / "leaderboard.csv").set_index(["model", "suite", "measure"])["value"]
    for name, path in zip(("random", "solo", "ideal"), files, strict=True):
        for suite, recorded in content(path)["suites"].items():
            assert numbers[name, suite, "net_reward"] == pytest.approx(recorded["scores"]["net_reward"]["value"])
            parts = [numbers[name, suite, f"lost_by_{part}"] for part in ("number", "stopping", "choice", "use")]
            assert sum(parts) == pytest.approx(numbers[name, suite, "lost"])
    assert numbers["random", "tiny_free", "net_reward"] < numbers["ideal", "tiny_free", "net_reward"]


def _first(data: dict[str, Any]) -> dict[str, Any]:
    """The first dialogue in which something was asked."""
    suite = data["suites"]["tiny_free"]["dialogues"]
    found: dict[str, Any] = next(dialogue for dialogue in suite if len(dialogue["turns"]) > 4)
    return found


def _set(part: Callable[[dict[str, Any]], Any], key: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: part(data).__setitem__(key, value)


def _another_game(data: dict[str, Any]) -> None:
    _first(data)["game"] = "0123456789abcdef/0"


def _twice(data: dict[str, Any]) -> None:
    dialogues = data["suites"]["tiny_free"]["dialogues"]
    dialogues[0] = dialogues[1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_set(_first, "reward", 1.5), "its reward is 1.5, but the replay's is"),
        (_set(_first, "stop_reason", "finished"), "it ended with finished, but the replay ended with agreed"),
        (_set(_first, "stop_reason", "turn_tokens"), "it ended with turn_tokens, but the replay ended with agreed"),
        (_set(lambda d: _first(d)["turns"][1], "text", "[message] 99."), "turn 2 is '[message] 99.' by the partner, but the replay"),
        (_set(lambda d: _first(d)["turns"][0], "text", "[message] Hello."), "turn 2 is "),
        (_set(lambda d: _first(d)["turns"][-2], "text", PLAN), "its reward is"),
        (lambda d: _first(d)["turns"].pop(), "it has"),
        (lambda d: _first(d)["turns"].pop(0), "violates the rules"),
        (lambda d: _first(d)["turns"].append({"role": "policy", "text": "[accept]"}), "it has"),
        (_another_game, "has 1 game, such as 0123456789abcdef/0, that tiny_free does not have"),
        (_twice, "that tiny_free does not have, or that are there twice"),
        (lambda d: d["suites"]["tiny_free"]["dialogues"].pop(), "lacks complete dialogues of 1 of the 6 games of tiny_free"),
        (_set(lambda d: d["suites"]["tiny_free"], "version", "000000000000"), "has version 000000000000 of tiny_free, but the current one"),
        (_set(lambda d: d, "canary", "another"), "does not hold the benchmark's canary"),
        (_set(lambda d: d, "format", 99), "has format 99"),
        (_set(lambda d: d["suites"], "huge", {}), "has the suite huge, which is not one of tiny_free, tiny_priced"),
        (_set(_first, "stop_reason", "won"), "is an incomplete result file"),
        (lambda d: d.pop("suites"), "is an incomplete result file"),
        (_set(lambda d: _first(d)["turns"][0], "text", 5), "is an incomplete result file"),
        *((_set(_first, "spent", {"cost_usd": cost}), "is not an amount from 0 to") for cost in ("nan", 1e308, -1, True, None)),
        (_set(_first, "spent", {"calls": float("inf")}), "is not JSON"),
        *((_set(lambda d: d, "model", name), "unprintable") for name in ("a\nb", "a\x1b[31mb", "a\u202eb")),
        (_set(lambda d: d["suites"]["tiny_free"]["policy"], "kind", "a\x07"), "unprintable"),
    ],
)  # fmt: skip
def test_a_file_that_was_changed_is_refused(
    bench: Any, board: list[object], tmp_path: Path, capsys: Any, change: Any, sentence: str
) -> None:
    path = rewritten(bench("ideal", "--suite", "tiny_free"), change)
    said = refused(capsys, *board, path)
    assert sentence in said and "ideal.json.gz" in said
    assert not (tmp_path / "board").exists()


def test_a_file_of_a_former_instrument_is_refused(bench: Any, board: list[object], suites: Path, capsys: Any) -> None:
    path = bench("ideal", "--suite", "tiny_free")
    written(suites, environment="tests.commands.bench_setup.NewInstrument")
    assert "has version" in refused(capsys, *board, path)


def test_what_is_no_result_is_one_sentence(bench: Any, board: list[object], tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"{}")[:-4])
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b"[]"))
    assert "is not JSON, compressed or plain" in refused(capsys, *board, tmp_path / "a.json.gz")
    assert "is not a result" in refused(capsys, *board, tmp_path / "b.json.gz")
    assert "cannot be read" in refused(capsys, *board, tmp_path / "c.json.gz")
    path = bench("solo", "--suite", "tiny_free")
    assert "Two results are called solo" in refused(capsys, *board, path, path)


def test_a_damaged_result_is_one_sentence(bench: Any, suites: Path, tmp_path: Path) -> None:
    """Any byte of it changed, or cut off there, before and after compression."""
    whole = bench("solo", "--suite", "tiny_free").read_bytes()
    known, rng = load_suites(suites), np.random.default_rng(0)
    path = tmp_path / "damaged.json.gz"
    refused = 0
    for plain in (False, True):
        content = gzip.decompress(whole) if plain else whole
        for at in rng.integers(len(content), size=60):
            for damaged in (content[:at], content[:at] + bytes([rng.integers(256)]) + content[at + 1 :]):
                path.write_bytes(gzip.compress(damaged) if plain else damaged)
                try:
                    read(path, known)
                except SlimError as error:
                    refused += "damaged.json.gz" in str(error) and "\n" not in str(error)
    assert refused > 150


def test_plain_json_is_read_too(bench: Any, board: list[object], tmp_path: Path) -> None:
    path = bench("solo", "--suite", "tiny_free")
    plain = tmp_path / "solo.json"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    run(*board, plain)


def test_names_in_a_file_are_words_and_never_markup(bench: Any, board: list[object], tmp_path: Path) -> None:
    run(*board, rewritten(bench("solo", "--suite", "tiny_free"), _set(lambda d: d, "model", "<b>me</b>")))
    page = (tmp_path / "board" / "leaderboard.html").read_text()
    assert "<b>me" not in page and "&lt;b&gt;me" in page


def test_people_are_a_line_where_their_games_are(
    bench: Any, board: list[object], suites: Path, tmp_path: Path, dialop_human: Path
) -> None:
    """Also beside a game, here the first by name, that has no games of people."""
    other = {"name": "another", "environment": "examples.guess_who.GuessWhoEnv", "game": {"size": 4}}
    other |= {"data": {"num_eval": 4, "seed": 7}, "partner": {"kind": "shy"}, "arms": {"free": {}}}
    (suites / "another.yaml").write_text(yaml.safe_dump({"slim_rl": other}))
    run(*board, bench("solo"), "--human", dialop_human / "optimization.jsonl")
    assert re.search(
        r"\| people, in DialOp's recorded 8×8 games \| 0\.921 \(.*\) \| 134 \|",
        (tmp_path / "board" / "README.md").read_text(),
    )


ROWS = ROOT / "analysis" / "bench"


def test_leaderboard_shipped_rows_are_of_current_suites() -> None:
    suites = {suite.name for suite in load_suites()}
    versions: dict[str, str] = {}  # of today's instruments, or all of the same earlier ones
    page = pd.read_csv(ROWS / "leaderboard.csv").set_index(["model", "suite", "measure"])["value"]
    files = {path.name.removesuffix(".json.gz"): content(path) for path in sorted(ROWS.glob("*.json.gz"))}
    assert {"random", "solo", "greedy4", "ideal", "warmstart"} <= files.keys()
    for name, data in files.items():
        assert data["canary"] == CANARY and data["model"] == name
        for suite, recorded in data["suites"].items():
            assert suite in suites and recorded["version"] == versions.setdefault(suite, recorded["version"])
            assert page[name, suite, "net_reward"] == pytest.approx(recorded["scores"]["net_reward"]["value"])
    assert sum(path.stat().st_size for path in ROWS.iterdir()) < 2 * 2**20


def test_a_row_that_comes_with_it_follows_from_the_rules() -> None:
    suites = load_suites(names=["matching_3x3"])
    recorded = content(ROWS / "warmstart.json.gz")["suites"]
    if any(recorded[suite.name]["version"] != suite.version for suite in suites):
        pytest.skip("the published rows are of earlier instruments: slim-rl lab run analysis/leaderboard")
    found = read(ROWS / "warmstart.json.gz", suites)
    assert [scored.suite.name for scored in found.scores] == ["matching_3x3_free", "matching_3x3_priced"]
