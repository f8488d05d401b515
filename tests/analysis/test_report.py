"""The whole way from logs to a page: its files, what a reader finds on it, and that nothing a log says is more than text."""

import html
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import orjson
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from slim_rl.analysis import Summary, analyze, report
from slim_rl.analysis.dialogues import choose, collect
from slim_rl.analysis.figures import PLOTS, curve, legend, levels, measures, style
from slim_rl.analysis.load import Log, load, read_dialogue
from slim_rl.analysis.page import Page, Section, write_figures
from slim_rl.analysis.summary import reference_lines
from slim_rl.analysis.tables import Table
from slim_rl.errors import DataError
from slim_rl.formats import interval, p_value, plain
from slim_rl.games.matching.study.references import people
from tests.analysis import synthetic
from tests.analysis.synthetic import EVIL
from tests.commands.shell import run
from tests.paths import HUMAN, ROOT

CHROMIUM = shutil.which("chromium") or ""
FIGURES = {"training", "reward_by_questions", "question_kinds", "stop_reasons", "measures"}


class Read(HTMLParser):
    """Tags, text, and every address and handler of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.source, self.words = path.read_text(encoding="utf-8"), ""
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="session")
def page(analysed: Summary) -> Read:
    return Read(analysed.report)


# -- files


def test_files_are_written_whole(analysed: Summary, log_dir: Path) -> None:
    folder = analysed.report.parent
    drawn = {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")}
    tables = list(folder.glob("table-*.csv"))  # of `--paper`, as the PDFs
    papers = {path.name for path in (*tables, *(folder / f"{name}.pdf" for name in FIGURES))}
    assert {path.name for path in folder.iterdir()} == {"report.html", "summary.json"} | drawn | papers
    cells = [str(cell) for path in tables for cell in pd.read_csv(path, dtype=str).to_numpy().ravel()]
    row = next(r for r in analysed.results["held_out"] if (r["arm"], r["measure"]) == ("shy", "questions"))
    assert any(cell.startswith(f"{row['before']:.3g} → ") for cell in cells)
    assert set(analysed.figures) == FIGURES
    for path in analysed.figures.values():
        assert path.read_bytes().startswith(b"\x89PNG") and "<svg" in path.with_suffix(".svg").read_text()
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    summary = json.loads(analysed.summary.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    lines = {str(path): len(path.read_text().splitlines()) for path in log_dir.rglob("*.jsonl")}
    assert {file["path"]: file["lines"] for file in summary["files"]} == lines
    assert summary["counts"]["dialogues"] == sum(lines.values()) and summary["version"]
    assert (summary["command"], summary["seed"]) == ("analyze <these> & those", 0)


def test_the_command_makes_the_same_of_the_same_logs(log_dir: Path, analysed: Summary, tmp_path: Path) -> None:
    words = ["--log_dir", str(log_dir), "--output_dir", str(tmp_path), "--max_dialogues", "60"]
    script = ROOT / "analysis" / "analyze_questions.py"
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"}
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0 and str(tmp_path / "report.html") in done.stdout, done.stderr
    first, again = (json.loads((folder / "summary.json").read_text()) for folder in (analysed.report.parent, tmp_path))
    assert again.pop("command") == f"analysis/analyze_questions.py {' '.join(words)}" != first.pop("command")
    assert again == first
    for name in ("training.svg", "reward_by_questions.svg", "measures.svg"):
        assert (tmp_path / name).read_bytes() == (analysed.report.parent / name).read_bytes()


@pytest.mark.usefixtures("unprinted")
def test_report_of_a_run_that_has_no_dialogue_yet_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: int) -> None:
        if (tmp_path / "logs").exists():
            raise SystemExit
        synthetic.write_runs(tmp_path / "logs", arms=("shy",), seeds=1, steps=2, n=3)

    monkeypatch.setattr("slim_rl.commands.analyze.time", SimpleNamespace(sleep=sleep))
    said = run("analyze", tmp_path / "logs", "--output", tmp_path, "--max-dialogues", 0, "--every", 1)
    first, then = said.splitlines()
    assert first.startswith("Waiting: There is no dialogue log") and "report.html" in then


def test_a_users_matplotlibrc_changes_no_figure(analysed: Summary, tmp_path: Path) -> None:
    sections = [Section("", plots={"training": PLOTS["training"]})]
    (own,) = write_figures(tmp_path, sections, analysed.results).values()
    with matplotlib.rc_context({"text.usetex": True, "font.size": 30}):
        (users,) = write_figures(tmp_path, sections, analysed.results).values()
        assert matplotlib.rcParams["text.usetex"]  # left as it was
    assert users == own


# -- what a reader finds


def test_numbers_of_the_page_are_those_of_the_summary(analysed: Summary, page: Read, log_dir: Path) -> None:
    results = analysed.results
    row = next(r for r in results["held_out"] if (r["arm"], r["measure"]) == ("shy", "questions"))
    assert f"{plain(row['before'])} → {plain(row['after'])}" in page.words
    assert f"{plain(row['value'], signed=True)}, {interval(row['low'], row['high'])}" in page.words
    lines = [json.loads(line) for path in log_dir.rglob("*.jsonl") for line in path.read_text().splitlines()]
    trained = Counter(line["arm"] for line in lines if line["phase"] == "train")
    tables = {table.caption: table for section in report.sections(results) for table in section.tables}
    (table,) = (table for caption, table in tables.items() if caption.startswith("Training:"))
    assert {row["arm"]: row["dialogues"] for row in table.rows} == {arm: f"{n:,}" for arm, n in trained.items()}

    def sections(**changed: Any) -> list[Section]:
        return report.sections({**results, **changed})

    human = {**results["references"], "human": results["references"]["solo"]}
    assert "people" not in "".join(tables)
    assert "and of people" in "".join(t.caption for each in sections(references=human) for t in each.tables)
    faults, never = (
        {"lied": {"faults": 0, "cases": 3}, "was silent": {"faults": 0, "cases": 3}},
        results["partner_faults"][0],
    )
    (folded,) = (
        e for e in sections(partner_faults=[{**never, "faults": faults}]) if e.heading == "Partner faults: none"
    )
    assert folded.folded and faults.keys() <= folded.tables[0].rows[0].keys()
    slipped = {**never, "faults": {**faults, "lied": {"faults": 1, "cases": 3}}}
    (table,) = (t for t in sections(partner_faults=[slipped])[1].tables if t.caption.startswith("Partner faults"))
    assert "was silent" not in table.rows[0] and table.caption.endswith("Never, although possible: was silent.")
    for row in results["correlations"]:
        assert -1 <= row["low"] <= row["value"] <= row["high"] <= 1
    for said in (
        *("Held-out games", "intervals over", "seeds and games", "analyze <these> & those"),
        *("Questions and reward within games", "It does not show causation", "Partner faults (intended ones included)"),
        "Shy: partner that answers what it is directly asked, and is vague otherwise.",
        f"60 of {results['counts']['dialogues']:,} dialogues",
        f"To show the others in a terminal: slim-rl show {log_dir}",
    ):
        assert said in page.words
    heads, alts = re.findall(r"<th scope[^>]*>(.*?)</th>", page.source), re.findall(r'<img alt="([^"]*)"', page.source)
    assert len(heads) > 20 and all(head.strip() for head in heads) and "{{" not in page.words
    assert len(alts) == page.tags["img"] == len(FIGURES) and all(len(alt.split()) >= 5 for alt in alts)


def test_references_lie_in_their_order(analysed: Summary) -> None:
    reward = {name: part["reward"]["value"] for name, part in analysed.results["references"].items()}
    assert reward["random"] < reward["solo"] < reward["pooled_optimal"] == 1.0
    greedy, random = (analysed.results["frontier"][name]["mean"] for name in ("greedy", "random"))
    assert greedy[0] == random[0] == pytest.approx(reward["solo"])
    assert greedy[1] > greedy[0] and random[1] > random[0] and greedy[-1] == random[-1] == pytest.approx(1.0)


@pytest.mark.skipif(not HUMAN.exists(), reason="DialOp's human games are not here")
def test_people_reach_what_the_recorded_games_say() -> None:
    reward = reference_lines([], HUMAN / "optimization.jsonl")["human"]["reward"]
    assert (round(reward["value"], 3), reward["n"]) == (0.921, 134)


def test_another_file_for_the_human_games_is_refused(tmp_path: Path) -> None:
    for content in ("", "not json", '{"reward": 1}'):
        (tmp_path / "games.jsonl").write_text(content)
        with pytest.raises(DataError, match=r"optimization\.jsonl"):
            people(tmp_path / "games.jsonl", [])


def test_every_run_and_stop_reason_is_shown(log_dir: Path) -> None:
    frame, keys = load([log_dir]).frame, ["arm", "run", "phase", "stop_reason"]
    chosen = choose(frame, 60, seed=1)
    assert len(chosen) == 60 and chosen.index.is_unique and len(choose(frame, 10**6)) == len(frame)
    assert chosen.groupby(keys, observed=True).ngroups == frame.groupby(keys, observed=True).ngroups
    assert choose(frame, 60, seed=1).equals(chosen) and not choose(frame, 60, seed=2).equals(chosen)


def test_dialogues_are_shown_as_they_were_logged(page: Read, log_dir: Path) -> None:
    log = load([log_dir])
    games = collect(log, 60)
    shown = [each for game in games for each in game.dialogues]
    assert len(shown) == 60 == len({(each.row.file, each.row.offset) for each in shown})
    assert max(each.row.questions for each in games[0].dialogues) > 0 and games[0].dialogues[-1].row.step == 24
    for game in games:
        assert len({(each.row.cluster, each.dialogue.seat) for each in game.dialogues}) == 1
        for each in game.dialogues:
            raw = read_dialogue(log, each.row)
            assert [turn.text for turn in each.dialogue.turns] == [turn["text"] for turn in raw["turns"]]
            assert all(turn["text"] in page.words for turn in raw["turns"])
            assert game.board is not None and list(map(list, game.board["truth"])) == raw["game_state"]["table"]


def test_logged_tokens_are_shown(tokenizer: Any, tokenizer_dir: Path, tmp_path: Path) -> None:
    made = synthetic.make_runs(arms=("shy",), seeds=1, steps=9, n=3)
    asked = [(0, 2)]
    dialogue = next(d for d in made if d.response_ids and [p for t in d.turns for p in t.pairs or ()] == asked)
    size = len(dialogue.response_ids)
    dialogue.response_ids, dialogue.logprobs = list(range(size)), [-0.5 * mask for mask in dialogue.loss_mask]
    (tmp_path / "a.jsonl").write_bytes(orjson.dumps(dialogue.to_dict(tokens=True)) + b"\n")
    log = load([tmp_path])
    (shown,), (ids,) = (collect(log, 1, tokenizer=folder)[0].dialogues for folder in (tokenizer_dir, None))
    assert [mask for _, mask, _ in shown.pieces] == dialogue.loss_mask and ids.pieces[3][0] == "3 "
    assert shown.pieces[9] == (tokenizer.decode([9]), dialogue.loss_mask[9], -0.5 * dialogue.loss_mask[9])
    page = Page("", [], [], {}, "", "", {}, games=collect(log, 1)).html()
    marks = re.findall(r"<span([^>]*)>\d+ </span>", page)
    assert ['class="own"' in mark for mark in marks] == list(map(bool, dialogue.loss_mask))
    rows = re.findall(r"<tr><th.*?</tr>", page.partition("Truth")[0], re.DOTALL)
    cells = [re.findall(r'<td class="([^"]*)"', row) for row in rows]
    assert [(r, c) for r, row in enumerate(cells) for c, kind in enumerate(row) if "asked" in kind] == asked


# -- figures


def test_figures_draw_what_is_there(analysed: Summary) -> None:
    results = analysed.results
    curves = [arm["measures"] for arm in results["curves"].values()]
    still = {name for name in curves[0] if not any(np.nan_to_num(curve[name]["mean"]).any() for curve in curves)}
    flat = {results["measures"][name]["title"].lower() for name in still}
    with style():
        figures = [figure for plot in PLOTS.values() if (figure := plot.draw(results)) is not None]
        drawn = measures(results)
        legend(drawn, {f"an arm by its settings: {number}": "black" for number in range(5)})
        drawn.draw_without_rendering()
        axes = Figure().subplots()
        axes.plot([0.9, 0.95])
        levels(axes, results)
    assert {text.get_fontsize() for f in figures for text in f.findobj(Text) if text.get_text()} == {9.0}
    assert max(part.get_tightbbox().x1 for part in (*drawn.axes, *drawn.legends)) <= drawn.bbox.x1
    assert flat and not {ax.get_title("left").replace("\n", " ").lower() for ax in drawn.axes} & flat
    assert axes.get_ylim()[1] >= 1 and any("pooled optimal" in text.get_text() for text in axes.texts)


@pytest.mark.parametrize(("panels", "ends"), [([[0.0, 0.0]], (0.0, 1.0)), ([[0.4, 5.0], [0.4, 0.0]], (0.0, None))])
def test_axes_of_counts_begin_at_zero(panels: list[list[float]], ends: tuple[float, float | None]) -> None:
    axes = Figure().subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, values in zip(axes, panels, strict=True):
        found = {"mean": values, "low": values, "high": values, "runs": {}}
        of_arm = {"shy": {"steps": [0, 1], "measures": {"questions": found}}}
        curve(ax, {"arms": ["shy"], "measures": {}, "curves": of_arm}, "questions")
    low, high = axes[0].get_ylim()
    assert low == ends[0] and (ends[1] is None or high == ends[1])


def test_numbers_as_text() -> None:
    found = (plain(1234.5), plain(-0.0123), plain(0.5, signed=True), plain(0.123, share=True))
    assert found == ("1,234.5", "−0.012", "+0.500", "12.3%")
    shares = (plain(0.0004, share=True, signed=True), interval(-0.0123, 0.02, share=True, signed=True))
    assert shares == ("+0.0 points", "−1.2 to 2.0")
    assert plain(float("nan")) == plain(None) == interval(None, 1.0) == p_value(float("nan")) == "–"
    assert (p_value(0.0004), p_value(0.0312)) == ("< 0.001", "0.031")


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")
def test_nothing_is_cut_on_a_phone(analysed: Summary, tmp_path: Path) -> None:
    """In a frame of 390 pixels; the script is the frame's, since the page allows none."""
    source = html.escape(analysed.report.read_text(encoding="utf-8"))
    (tmp_path / "phone.html").write_text(f'''<iframe srcdoc="{source}" style="width: 390px; border: 0"></iframe><script>
        window.onload = () => {{
            const page = document.querySelector("iframe").contentDocument;
            page.querySelectorAll("details").forEach(each => each.open = true);
            const parts = [...page.querySelectorAll("h1, h2, p, li, summary, figure, img, figcaption, td, .bubble, .board")];
            const cut = parts.filter(each => each.getBoundingClientRect().right > 390 || each.scrollWidth > each.clientWidth + 1 &&
                getComputedStyle(each).display != "inline");
            document.title = `${{parts.length}} ${{page.documentElement.scrollWidth}} ` + cut.map(each => each.outerHTML.slice(0, 99));
        }}</script>''')
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run([*command, f"file://{tmp_path}/phone.html"], capture_output=True, text=True, check=True)
    parts, width, cut = re.search(r"<title>(\d+) (\d+) (.*?)</title>", done.stdout, re.S).groups()  # type: ignore[union-attr]
    assert int(parts) > 500 and int(width) <= 390 and not cut


# -- what a log says is text


def test_nothing_is_fetched_and_an_attack_stays_text(page: Read, evil_report: Path) -> None:
    evil = Read(evil_report)
    for each in (page, evil):
        assert each.tags["script"] == each.tags["link"] == each.tags["iframe"] == 0
        assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'\"" in each.source
        loaded = [value for name, value in each.attributes if name in ("src", "href", "action", "data")]
        assert all(address.startswith(("#", "data:image/svg+xml;base64,")) for address in loaded)
        assert not [name for name, _ in each.attributes if name.startswith("on")]
    assert "<img src=x" not in evil.source and "&lt;img src=x onerror=" in evil.source
    assert evil.words.count(EVIL) > 9  # whole, in the tables and the dialogues


# -- sections of others


def test_a_registered_section_is_in_report_and_summary(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unprinted: None
) -> None:
    monkeypatch.setattr(report, "SECTIONS", [])
    old = [tmp_path / f"measures.{form}" for form in ("png", "svg", "pdf")]
    for path in old:
        path.touch()

    @report.register
    def dialogues_per_arm(log: Log, price: float) -> Section:
        arms = log.frame.groupby("arm", observed=True)
        rows = [{"arm": str(arm), "dialogues": f"{len(part):,}"} for arm, part in arms]
        return Section("Dialogues per arm", {"per_arm": rows, "at": price}, [Table("How many there are.", rows)])

    summary = analyze([log_dir], tmp_path, max_dialogues=0, price=0.5)
    page = summary.report.read_text(encoding="utf-8")
    assert "<h2>Dialogues per arm</h2>" in page and "How many there are." in page
    assert [row["arm"] for row in summary.results["per_arm"]] == summary.results["arms"]
    assert summary.results["at"] == 0.5 and "gap" not in summary.results
    assert not old[2].exists() and old[1].stat().st_size, "a figure of the report before, in a form not asked for"
