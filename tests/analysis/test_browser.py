"""The report in a real browser, as a reader uses it. Skipped where there is no Chromium."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from slim_rl.analysis import Summary, analyze
from slim_rl.analysis.live import LiveRun
from slim_rl.commands.watch import serving
from tests.analysis import synthetic
from tests.analysis.browser import CHROMIUM, browse
from tests.analysis.browser import chromium as started
from tests.analysis.synthetic import EVIL, unpack

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.fixture(scope="module")
def chromium() -> Iterator[str]:
    """The browser of all tests, of which each has a page of its own."""
    with started() as address:
        yield address


@pytest.fixture
def dialogues(analysed: Summary) -> list[dict[str, Any]]:
    return viewer_data(analysed)["dialogues"]


def viewer_data(analysed: Summary) -> dict[str, Any]:
    text = analysed.report.read_text(encoding="utf-8")
    return unpack(re.search(r'<script type="application/gzip" id="data">(.*?)</script>', text, re.S)[1])


async def test_a_link_shows_its_dialogue(chromium: str, analysed: Summary) -> None:
    data = viewer_data(analysed)
    wanted = next(d for d in data["dialogues"] if d["stop"] == "agreed" and d["questions"] >= 2)
    async with browse(chromium) as page:
        await page.open(f"file://{analysed.report}#d={wanted['key']}")
        shown = await page.text("#detail")
        assert f"{wanted['phase']} step {wanted['step']} · game {wanted['game']}" in shown
        assert all(turn["text"] in shown for turn in wanted["turns"])
        assert f"policy {wanted['policy']} at step {wanted['step']}" in shown
        board = data["boards"][wanted["board"]]
        total = sum(board["truth"][r][p] for r, p in enumerate(wanted["turns"][-2]["assignment"]))
        assert f"{100 * total / board['score']:.1f}% of {board['score']}" in shown
        assert await page.text("#count") == "60 of 60 dialogues"
        assert page.problems == []


async def test_filters_and_order(chromium: str, analysed: Summary, dialogues: list[dict[str, Any]]) -> None:
    async with browse(chromium) as page:
        await page.open(f"file://{analysed.report}")
        await page.choose("f-asks", "2")
        asking = [d for d in dialogues if d["questions"] >= 2]
        assert await page.text("#count") == f"{len(asking)} of 60 dialogues"
        await page.choose("f-asks", "")
        await page.choose("f-kind", "kcheck")
        assert await page.text("#count") == f"{sum('check' in d['kinds'] for d in dialogues)} of 60 dialogues"
        await page.choose("f-kind", "")
        await page.choose("f-order", "most questions")
        assert (await page.text("#list li")).split()[1] == str(max(d["questions"] for d in dialogues))
        await page.choose("f-order", "lowest reward")
        rewards = await page.run("state.shown.map(d => d.reward)")
        played = [reward for reward in rewards if reward is not None]
        assert played == sorted(played) and rewards[: len(played)] == played
        await page.choose("f-text", "nobody ever said this")
        assert "No dialogue passes" in await page.text("#detail")
        assert page.problems == []


async def test_a_new_order_begins_at_its_top(chromium: str, analysed: Summary, dialogues: list[dict[str, Any]]) -> None:
    async with browse(chromium) as page:
        await page.resize(1300, 900)
        await page.open(f"file://{analysed.report}#d={dialogues[-1]['key']}")
        assert await page.run("document.getElementById('list').scrollTop") > 0
        await page.choose("f-order", "highest question value")
        values = await page.run("state.shown.map(d => d.question_value)")
        assert values == sorted(values, reverse=True) and values[0] > values[-1]
        assert await page.run("document.getElementById('list').scrollTop") == 0
        assert await page.run("location.hash") == await page.run("'#d=' + state.shown[0].key")
        assert f"question value {values[0]:.3f}" in await page.text("#detail")
        assert await page.run("document.querySelector('#list a[aria-current]').hash === location.hash")
        assert page.problems == []


async def test_what_is_searched_for_is_marked_until_reset(
    chromium: str, analysed: Summary, dialogues: list[dict[str, Any]]
) -> None:
    marks = "[...document.querySelectorAll('#detail .bubble mark')].map((mark) => mark.innerText)"
    async with browse(chromium) as page:
        await page.open(f"file://{analysed.report}")
        await page.choose("f-order", "lowest reward")
        await page.choose("f-asks", "1")
        await page.choose("f-text", "how GOOD is")
        hits = [d for d in dialogues if any("How good is" in turn["text"] for turn in d["turns"])]
        assert await page.text("#count") == f"{len(hits)} of 60 dialogues"
        shown = await page.run("state.shown[state.at].turns.filter((turn) => turn.text.includes('How good is')).length")
        assert await page.run(marks) == ["How good is"] * shown
        await page.choose("f-text", "(.*")  # words, not a pattern
        assert await page.text("#count") == "0 of 60 dialogues"
        await page.run("document.getElementById('reset').click()")
        assert await page.text("#count") == "60 of 60 dialogues"
        assert await page.run(marks) == []
        assert await page.run("state.shown.map((d) => d.key)") == [d["key"] for d in dialogues]
        fields = "[...document.querySelectorAll('.filters input, .filters select')].map((field) => field.value)"
        assert await page.run(fields) == ["run and step", *[""] * (len(await page.run(fields)) - 1)]
        assert page.problems == []


@pytest.mark.usefixtures("unprinted")
async def test_thousands_of_dialogues_are_listed_and_found(chromium: str, tmp_path: Path) -> None:
    """As many as `make run` makes; of the list's entries only those in sight are made."""
    synthetic.write_many(tmp_path / "logs" / "log.jsonl", 8000, distinct=400, arms=("shy",), seeds=1, n=3)
    summary = analyze([tmp_path / "logs"], tmp_path / "plots")
    assert summary.results["sampled"] == summary.results["counts"]["dialogues"] >= 7800
    assert f"All {summary.results['sampled']:,} dialogues" in summary.report.read_text(encoding="utf-8")
    async with browse(chromium) as page:
        await page.resize(1300, 900)
        await page.open(f"file://{summary.report}")
        last = await page.run("DATA.dialogues.at(-1).key")
        assert await page.run("document.querySelectorAll('#list a').length") < 200
        await page.run(f"location.hash = '#d={last}'")
        assert await page.run("document.querySelector('#list a[aria-current]').hash") == f"#d={last}"
        box = await page.run("document.getElementById('list').getBoundingClientRect().toJSON()")
        entry = await page.run("document.querySelector('#list a[aria-current]').getBoundingClientRect().toJSON()")
        assert box["top"] <= entry["top"] and entry["bottom"] <= box["bottom"] + 1
        await page.run("document.getElementById('list').scrollTop = 0")
        await page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert await page.run("document.querySelector('#list a').hash") == await page.run(
            "'#d=' + DATA.dialogues[0].key"
        )
        assert page.problems == []


async def test_keys_move_and_the_address_follows(
    chromium: str, analysed: Summary, dialogues: list[dict[str, Any]]
) -> None:
    async with browse(chromium) as page:
        await page.open(f"file://{analysed.report}#d={dialogues[0]['key']}")
        await page.press("j")
        assert await page.run("location.hash") == f"#d={dialogues[1]['key']}"
        await page.press("ArrowRight")
        await page.press("k")
        assert await page.run("location.hash") == f"#d={dialogues[1]['key']}"
        await page.choose(
            "f-asks", str(dialogues[1]["questions"] + 1)
        )  # the one on show goes; the address goes with it
        assert await page.run("location.hash") == await page.run("'#d=' + state.shown[0].key")
        await page.open(f"file://{analysed.report}#d=0123456789ab")
        assert await page.run("document.getElementById('absent').hidden") is False
        assert page.problems == []


async def test_before_and_after_side_by_side(chromium: str, analysed: Summary, dialogues: list[dict[str, Any]]) -> None:
    async with browse(chromium) as page:
        await page.open(f"file://{analysed.report}")
        first = await page.run("DATA.dialogues.find((d) => otherEnd(d) && d.step === 0)")
        await page.run(f"location.hash = '#d={first['key']}'")
        await page.press("b")
        heads = await page.run("[...document.querySelectorAll('.column h4')].map((head) => head.innerText)")
        assert [head.split(":")[0] for head in heads] == ["eval step 0", "eval step 24"]
        address = await page.run("location.hash")
        await page.open(f"file://{analysed.report}{address}")
        assert await page.run("document.querySelectorAll('.column').length") == 2
        grouped = await page.run("DATA.dialogues.find((d) => DATA.dialogues.some((o) => o !== d && inGroup(d, o)))")
        await page.open(f"file://{analysed.report}#d={grouped['key']}")
        assert "This group" in await page.text("#detail")
        assert page.problems == []


async def test_narrow_and_dark(chromium: str, analysed: Summary) -> None:
    """On a narrow screen a wide figure keeps a size that can be read, and moves in its own frame, not the page."""
    width = "document.querySelector('#answer img').getBoundingClientRect().width"
    async with browse(chromium) as page:
        await page.resize(420, 900)
        await page.open(f"file://{analysed.report}")
        assert await page.run("document.documentElement.scrollWidth") <= 420
        assert await page.run(width) > 700
        await page.resize(1300, 900, dark=True)
        assert await page.run("document.documentElement.scrollWidth") <= 1300
        assert "invert" in await page.run("getComputedStyle(document.querySelector('figure img')).filter")


async def test_an_attack_stays_text(chromium: str, evil_report: Path) -> None:
    async with browse(chromium) as page:
        await page.open(f"file://{evil_report}#dialogues")
        assert "owned" not in await page.run("document.title")
        assert await page.run("document.scripts.length") == 2
        assert await page.run("document.querySelectorAll('img[src=x], #detail img').length") == 0
        assert f"Refused: {EVIL}" in await page.text("#detail")
        assert page.problems == []


async def test_page_of_a_live_run_refreshes_itself(chromium: str, tmp_path: Path) -> None:
    made = synthetic.make_runs(arms=("shy",), seeds=1, steps=4, games_per_step=4, group=2, n=3, eval_games=0)
    lines = [orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n" for dialogue in made]
    log = tmp_path / "train.jsonl"
    with serving(LiveRun(log), 0, every=0.2) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            async with browse(chromium) as page:

                async def until(code: str) -> None:
                    for _ in range(200):
                        if await page.run(code):
                            return
                        await asyncio.sleep(0.05)
                    raise TimeoutError(code)

                await page.open(f"http://127.0.0.1:{server.server_port}/")
                assert "Waiting for the dialogues" in await page.text("#answer")
                log.write_bytes(b"".join(lines[:8]))
                await until("document.getElementById('detail') !== null")  # it has loaded itself anew, with the viewer
                assert "8 training dialogues, 1 step;" in await page.text("#answer")
                assert "loss mask 1, blue" in await page.text("#detail")
                await page.run("window.before = true")
                await page.choose("f-asks", "1")
                await page.run("document.querySelectorAll('#list a')[1].click()")
                await until("location.hash !== ''")
                address, read = await page.run("location.hash"), await page.text("#detail .chat")
                log.write_bytes(b"".join(lines[:24]) + lines[24][:50])
                await until("document.getElementById('answer').innerText.includes('24 training dialogues, 3 steps')")
                await until("DATA.dialogues.length === 24")
                assert "The last 24 of 24 dialogues" in await page.text("#dialogues .hint")
                assert await page.run("window.before"), "the page itself was not loaded again"
                assert await page.run("location.hash") == address and await page.text("#detail .chat") == read
                asked = await page.run("state.shown.every((d) => d.questions >= 1) && state.shown.length > 1")
                assert asked and await page.run("document.getElementById('f-asks').value") == "1"
                assert await page.run("document.querySelectorAll('figure img').length") >= 3
                assert page.problems == []
                server.shutdown()
                server.server_close()
                await until("document.getElementById('renewal').innerText.includes('no longer answers')")
                # What the browser itself says of a server that has gone is said in several ways.
                assert all("Failed to load resource" in problem for problem in page.problems), page.problems
        finally:
            server.shutdown()
            thread.join()
