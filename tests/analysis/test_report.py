"""The report: whole, self-contained, and not affected by what a log says."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from slim_rl.analysis import Summary
from slim_rl.analysis.curves import curve, measures
from slim_rl.analysis.figure_style import style
from slim_rl.analysis.figures import PLOTS
from slim_rl.analysis.load import load
from slim_rl.analysis.page import SCRIPTS, packed
from slim_rl.analysis.report_tables import Tables
from slim_rl.analysis.viewer import choose, collect, token_decoder
from slim_rl.errors import DataError
from slim_rl.formats import interval, p_value, plain
from tests.analysis import synthetic
from tests.analysis.synthetic import EVIL, unpack


class Page(HTMLParser):
    """Collects tags, the text of scripts by kind, and every address that an element would load."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.scripts: dict[str, str] = {}
        self.words = ""
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        given = {name: value or "" for name, value in attrs}
        self.addresses += [given[name] for name in ("src", "href", "action", "data") if name in given]
        self.handlers += [name for name in given if name.startswith("on")]
        if tag == "script":
            self._inside = given.get("type", "code")

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is None:
            self.words += data
        else:
            self.scripts[self._inside] = self.scripts.get(self._inside, "") + data


@pytest.fixture(scope="session")
def page(analysed: Summary) -> Page:
    return Page(analysed.report.read_text(encoding="utf-8"))


def viewer_data(page: Page) -> dict[str, Any]:
    return unpack(page.scripts["application/gzip"])


# -- the page


def test_the_page_loads_nothing_from_elsewhere(page: Page) -> None:
    assert page.tags["img"] >= 6
    assert all(address.startswith(("#", "data:image/svg+xml;base64,")) for address in page.addresses)
    assert page.tags["link"] == page.tags["iframe"] == 0
    assert page.handlers == []


def test_the_content_policy_allows_the_one_script(analysed: Summary, page: Page) -> None:
    text = analysed.report.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(page.scripts["code"].encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    assert page.tags["script"] == 2


def test_figures_tables_and_sources_are_there(analysed: Summary, page: Page) -> None:
    for words_expected in ("Held-out games", "Log files", "dialogues.jsonl", "intervals over", "seeds and games"):
        assert words_expected in page.words
    assert page.tags["img"] == len(analysed.figures)
    assert "{{" not in page.words
    assert "analyze <these> & those" in page.words  # escaped in the source, whole on the page


def test_pictures_are_described_and_every_column_has_a_head(analysed: Summary) -> None:
    text = analysed.report.read_text(encoding="utf-8")
    alts = re.findall(r'<img alt="([^"]*)"', text)
    assert len(alts) == len(analysed.figures) and all(len(alt.split()) >= 5 for alt in alts)
    questions = analysed.results["curves"]["shy"]["measures"]["questions"]["mean"]
    (training,) = (alt for alt in alts if alt.startswith("Line chart over training."))
    assert f"shy from {plain(questions[0])} to {plain(questions[-1])}" in training and "mute from" in training
    heads = re.findall(r"<th [^>]*>(.*?)</th>", text)
    assert len(heads) > 20 and all(head.strip() for head in heads)


def test_numbers_of_the_page_are_those_of_the_summary(analysed: Summary, page: Page) -> None:
    summary = json.loads(analysed.summary.read_text(encoding="utf-8"))
    row = next(r for r in summary["held_out"] if r["arm"] == "shy" and r["measure"] == "questions")
    assert f"{plain(row['before'])} → {plain(row['after'])}" in page.words
    assert f"{plain(row['value'], signed=True)}, {interval(row['low'], row['high'])}" in page.words
    assert f"{summary['counts']['dialogues']:,} dialogues" in page.words


def test_the_training_table_counts_training_dialogues_alone(analysed: Summary, log_dir: Path) -> None:
    lines = [json.loads(line) for path in log_dir.rglob("*.jsonl") for line in path.read_text().splitlines()]
    trained = Counter(line["arm"] for line in lines if line["phase"] == "train")
    table = Tables(analysed.results).training()
    (shown,) = (column for column in table.columns if column.head == "dialogues")
    assert {row["arm"]: shown.show(row) for row in table.rows} == {arm: f"{n:,}" for arm, n in trained.items()}
    assert sum(trained.values()) < len(lines)


def test_ticks_of_a_share_are_exact_and_stand_where_they_say() -> None:
    curve = {"mean": [0.99, 0.994, 0.998], "low": [0.988, 0.992, 0.996], "high": [0.992, 0.996, 1.0], "runs": {}}
    results = {
        "arms": ["shy"],
        "measures": {"agreed": {"title": "games agreed", "share": True, "role": "secondary"}},
        "curves": {"shy": {"steps": [0, 1, 2], "measures": {"agreed": curve}}},
    }
    with style():
        figure = measures(results)
        assert figure is not None
        figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    told = [(place, label.get_text()) for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)]
    assert len({text for _, text in told}) == len(told) >= 3
    assert all(float(text[:-1]) / 100 == pytest.approx(place) for place, text in told if text)
    assert all(text == "" for place, text in told if place > 1.000001)


def test_numbers_as_text() -> None:
    assert (plain(1234.5), plain(-0.0123), plain(0.5, signed=True), plain(0.123, share=True)) == (
        "1,234.5", "−0.012", "+0.500", "12.3%",
    )  # fmt: skip
    assert (plain(0.0004, share=True, signed=True), interval(-0.0123, 0.02, share=True, signed=True)) == (
        "+0.0 points", "−1.2 to 2.0",
    )  # fmt: skip
    assert plain(float("nan")) == plain(None) == interval(None, 1.0) == p_value(float("nan")) == "–"
    assert (p_value(0.0004), p_value(0.0312)) == ("< 0.001", "0.031")


# -- what a log says is text


def test_data_cannot_end_its_element() -> None:
    data = {"a": EVIL, "b": "\u2028\u2029"}
    assert re.fullmatch(r"[\w+/=]+", packed(data), re.ASCII)
    assert unpack(packed(data)) == data
    assert packed(data) == packed(data)


def test_names_are_escaped(evil_report: Path) -> None:
    assert "<img src=x" not in evil_report.read_text(encoding="utf-8")
    assert "&lt;img src=x onerror=" in evil_report.read_text(encoding="utf-8")


def test_the_viewer_makes_no_markup_from_text() -> None:
    script = "".join(files("slim_rl.analysis").joinpath("page", name).read_text(encoding="utf-8") for name in SCRIPTS)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)


def test_an_attack_adds_no_element(evil_report: Path) -> None:
    page = Page(evil_report.read_text(encoding="utf-8"))
    assert page.tags["script"] == 2
    assert page.handlers == []
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert viewer_data(page)["dialogues"][0]["turns"][0]["text"] == EVIL
    assert "document.title='owned'" in page.words  # as text, in the tables


# -- the dialogues to read


def test_every_run_and_stop_reason_is_shown(log_dir: Path) -> None:
    frame = load([log_dir]).frame
    keys = ["arm", "run", "phase", "stop_reason"]
    strata = frame.groupby(keys, observed=True).ngroups
    chosen = choose(frame, 60, seed=1)
    assert len(chosen) == 60
    assert chosen.groupby(keys, observed=True).ngroups == strata
    assert chosen.index.is_unique
    assert choose(frame, 60, seed=1).equals(chosen)
    assert not choose(frame, 60, seed=2).equals(chosen)
    assert len(choose(frame, 10**6)) == len(frame)


def test_the_viewer_shows_what_was_logged(analysed: Summary, page: Page, log_dir: Path) -> None:
    data = viewer_data(page)
    assert len(data["dialogues"]) == analysed.results["sampled"] == 60
    assert len({d["key"] for d in data["dialogues"]}) == 60
    lines = [json.loads(line) for path in log_dir.rglob("*.jsonl") for line in path.read_text().splitlines()]
    by_place = {(d["arm"], d["run"], d["phase"], d["step"], d["game_id"], d["seed"]): d for d in lines}
    for shown in data["dialogues"]:
        raw = by_place[tuple(shown[k] for k in ("arm", "run", "phase", "step", "game", "seed"))]
        assert [turn["text"] for turn in shown["turns"]] == [turn["text"] for turn in raw["turns"]]
        assert [turn["question_value"] for turn in shown["turns"]] == [turn["question_value"] for turn in raw["turns"]]
        assert shown["tokens"] == raw["tokens"]
        board, state = data["boards"][shown["board"]], raw["game_state"]
        assert board["truth"] == state["table"]
        assert board["score"] == sum(state["table"][r][p] for r, p in enumerate(board["best"]))
        for seat, mask in enumerate((state["mask1"], state["mask2"])):
            assert [[value is not None for value in row] for row in board["shown"][seat]] == mask
        assert [data["texts"][i] for _, i in shown["prompt"]] == [message["content"] for message in raw["prompt"]]


def test_informative_pairs_of_the_turns_add_up(log_dir: Path) -> None:
    log = load([log_dir])
    shown = collect(log, len(log.frame))
    total = sum(turn["informative"] for d in shown["dialogues"] for turn in d["turns"])
    assert total == log.frame["informative_pairs"].sum() > 0


def test_the_size_is_bounded(log_dir: Path) -> None:
    data = collect(load([log_dir]), 10**6, max_bytes=40_000)
    assert 5 < len(data["dialogues"]) < 100
    assert len(orjson.dumps(data)) < 42_000


def test_partial_report_names_where_the_rest_is(analysed: Summary, page: Page, log_dir: Path) -> None:
    assert f"60 of {analysed.results['counts']['dialogues']:,} dialogues" in page.words
    assert f"To show the others in a terminal: slim-rl show {log_dir}" in page.words


def test_logged_tokens_are_shown(tmp_path: Path) -> None:
    dialogue = next(d for d in synthetic.make_runs(arms=("shy",), seeds=1, steps=9, n=3) if d.response_ids)
    size = len(dialogue.response_ids)
    dialogue.response_ids, dialogue.logprobs = list(range(size)), [-0.5 * mask for mask in dialogue.loss_mask]
    (tmp_path / "a.jsonl").write_bytes(orjson.dumps(dialogue.to_dict(tokens=True)) + b"\n")
    log = load([tmp_path])
    pieces = collect(log, 1, decode=lambda token: f"<{token}>")["dialogues"][0]["pieces"]
    assert [mask for _, mask, _ in pieces] == dialogue.loss_mask
    assert pieces[0] == ("<0>", 1, -0.5)
    assert collect(log, 1)["dialogues"][0]["pieces"][3][0] == "3 "
    assert collect(log, 1)["dialogues"][0]["tokens"] == {
        "prompt": 300,
        "response": size,
        "policy": sum(dialogue.loss_mask),
    }


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        token_decoder(tmp_path)


def test_report_names_human_reference_only_if_present(analysed: Summary) -> None:
    lines = analysed.results["references"]
    human = {"human": next(iter(lines.values()))}
    assert "people" not in Tables(analysed.results).references().caption
    assert "people" in Tables(analysed.results | {"references": lines | human}).references().caption


def test_the_report_opens_with_a_dialogue_that_asks(analysed: Summary, page: Page) -> None:
    data = viewer_data(page)
    first = data["dialogues"][data["first"]]
    assert first["questions"] > 0 and first["phase"] == "eval" and first["step"] > 0


def test_other_measures_are_folded_and_zeros_are_named(analysed: Summary) -> None:
    text = analysed.report.read_text(encoding="utf-8")
    figures = text[text.index('id="figures"') : text.index('id="tables"')]
    assert "<details><summary>Other measures over training" in figures
    flat = [
        about["title"]
        for name, about in analysed.results["measures"].items()
        if not any(np.nan_to_num(c["measures"][name]["mean"]).any() for c in analysed.results["curves"].values())
    ]
    assert flat and all(title in figures for title in flat) and "Zero throughout" in figures
    with style():
        drawn = [ax.get_title().replace("\n", " ").lower() for ax in measures(analysed.results).axes if ax.get_title()]
    assert not set(drawn) & {title.lower() for title in flat}


def test_all_zero_curves_have_an_axis_from_zero_to_one() -> None:
    found = {"mean": [0.0, 0.0], "low": [0.0, 0.0], "high": [0.0, 0.0], "runs": {}}
    results = {"arms": ["shy"], "measures": {}, "curves": {"shy": {"steps": [0, 1], "measures": {"questions": found}}}}
    ax = Figure().subplots()
    curve(ax, results, "questions")
    assert ax.get_ylim() == (0.0, 1.0)


def test_shared_axis_shows_the_zeros_of_a_later_panel() -> None:
    figure = Figure()
    for ax, values in zip(figure.subplots(1, 2, sharey=True), ([0.4, 5.0], [0.4, 0.0]), strict=True):
        found = {"mean": values, "low": values, "high": values, "runs": {}}
        results = {
            "arms": ["shy"],
            "measures": {},
            "curves": {"shy": {"steps": [0, 1], "measures": {"questions": found}}},
        }
        curve(ax, results, "questions")
    assert figure.axes[0].get_ylim()[0] == 0.0


def test_words_of_all_figures_have_one_size(analysed: Summary) -> None:
    with style():
        for plot in PLOTS.values():
            if (figure := plot.draw(analysed.results)) is not None:
                sizes = {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()}
                assert sizes == {9.0}


def test_captions_name_only_what_is_drawn(analysed: Summary) -> None:
    caption = PLOTS["training"].text(analysed.results)
    assert "Thin lines" in caption and "Dots" not in caption
    one = {**analysed.results, "references": {}}
    assert "Dotted" not in PLOTS["training"].text(one)


def test_the_correlation_within_games_stands_beside_its_limits(analysed: Summary) -> None:
    rows = analysed.results["correlations"]
    assert {(row["arm"], row["when"]) for row in rows} >= {("shy", "training"), ("mute", "training")}
    assert all(-1 <= row["low"] <= row["value"] <= row["high"] <= 1 for row in rows)
    text = analysed.report.read_text(encoding="utf-8")
    assert "Questions and reward within games" in text and "It does not show causation" in text
