"""No secret gets out, whatever an endpoint repeats of it."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.config import OpenAIConfig
from slim_rl.dialogue.players import PartnerFailure
from slim_rl.http import Response
from slim_rl.partners.answers import AnswerReader, Fault
from slim_rl.partners.quoting import Secrets
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import QUESTION, partner_of, text_of, view_after

KEY = "sk-" + "abcdefghij" * 6


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield


def is_clean(text: str) -> bool:
    return not any(KEY[at : at + 12] in text for at in range(len(KEY) - 12))


ECHOES = [
    Step(text="[message] {authorization}"),
    Step(
        "status",
        status=200,
        body='{"model": "{authorization}", "choices": [{"message": {"content": "[message] fine"}}]}',
    ),
    Step(text="{authorization}"),
    Step("status", status=400, code="context_length_exceeded", message="{authorization}"),
    Step("status", status=500, message="x" * 200 + "{authorization}" * 9),
    Step("status", status=418, code=KEY, message="teapot"),
    Step("status", status=400, message=f"{'x' * 215}{KEY}"),
]


@pytest.mark.parametrize("echo", ECHOES, ids=range(len(ECHOES)))
async def test_an_echo_is_in_no_reply_log_or_cassette(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, echo: Step
) -> None:
    caplog.set_level(logging.DEBUG)
    async with OpenAIServer(script=[Step(text="[message] up"), *[echo] * 9]) as server:
        partner = partner_of(server, cassette=tmp_path / "a.sqlite", max_retries=2)
        await partner.act(view_after(QUESTION, seed=1))
        try:
            outcome = repr(await partner.act(view_after(QUESTION)))
        except PartnerFailure as failure:
            outcome = str(failure)
        assert any(KEY in request["Authorization"] for request in server.headers)
    assert is_clean(outcome) and is_clean(json.dumps(partner.identity)) and is_clean(repr(partner.endpoint.spend.total))
    assert is_clean(caplog.text) and is_clean(text_of(tmp_path / "a.sqlite"))
    assert KEY not in json.dumps(server.requests)


@pytest.mark.parametrize("before", range(0, 70, 7))
def test_an_answer_that_is_none_is_redacted_before_it_is_cut(before: int) -> None:
    fault = AnswerReader(OpenAIConfig(), Secrets(KEY)).read(
        Response(200, ("x" * before + KEY).encode(), {}), {"messages": []}, ever_answered=False
    )
    assert isinstance(fault, Fault) and "not a chat completion" in fault.why and is_clean(fault.why)


@given(st.text(), st.text())
def test_what_holds_no_secret_stays_as_it_is(before: str, after: str) -> None:
    secrets = Secrets(KEY, "a:b")
    assert secrets.redact(before) == before
    assert secrets.redact(f"{before}{KEY}{after}") == f"{before}***{after}"


def test_partner_text_with_a_short_key_stays() -> None:
    assert Secrets("none").redact("none of them", 8) == "none of them"


DISTINCTIVE = "sk-distinctive-5f1e0c77"
BASIC = base64.b64encode(b"me:hush-8842aa").decode()

RUN = """
import asyncio, logging, sys, traceback
logging.basicConfig(level=logging.DEBUG)
from slim_rl.config import PartnerConfig
from slim_rl.dialogue.record import Dialogue
from slim_rl.games.matching.partners.chat import MatchingChatPartner as OpenAIPartner
from tests.partners.openai_setup import QUESTION, hasten, partner_config, view_after

async def main(url, folder):
    for name, headers in (("plain", {}), ("headers", {"Authorization": "Basic %(basic)s"})):
        config = partner_config(
            url, headers=headers, max_retries=1, request_seconds=0.3, cassette=f"{folder}/{name}.sqlite"
        )
        partner = OpenAIPartner(config.openai)
        hasten(partner.endpoint)
        print(partner.identity)
        for seed in range(12):
            try:
                print(await partner.act(view_after(QUESTION, seed=seed)))
            except Exception as failure:
                traceback.print_exc()
                print(repr(failure), vars(failure))
        print(partner.stopped, partner.endpoint.spend.total, partner.endpoint.spend, open("/proc/self/cmdline").read())
    raise SystemExit("over")

asyncio.run(main(*sys.argv[1:]))
"""


async def test_nothing_a_failing_run_wrote_holds_a_secret(tmp_path: Path) -> None:
    echo = "You sent {authorization}."
    script = [
        step
        for _ in ("plain", "headers")
        for step in (
            Step(text="[message] fine"),
            *[Step("status", status=500, message=echo)] * 2,
            *[Step("status", status=429, message=echo, retry_after=0.01)] * 2,
            *[Step("cut")] * 2,
            *[Step("junk")] * 2,
            *[Step("hang")] * 2,
            Step("status", status=400, message=echo),
            Step("status", status=401, message=echo),
            Step("status", status=404, message=echo),
        )
    ]
    program = tmp_path / "run.py"
    program.write_text(RUN % {"basic": BASIC})
    out = tmp_path / "written"
    out.mkdir()
    async with OpenAIServer(script=script) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(program),
            server.url,
            str(out),
            cwd=out,
            env=os.environ
            | {
                "OPENAI_API_KEY": DISTINCTIVE,
                "OPENAI_LOG": "debug",
                "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
    (out / "stdout").write_bytes(stdout)
    (out / "stderr").write_bytes(stderr)
    assert b"over" in stderr, stderr.decode()[-2000:]
    sent = {request["Authorization"] for request in server.headers}
    assert f"Bearer {DISTINCTIVE}" in sent and any(value.startswith("Basic ") for value in sent), "it was really used"
    everything = {path.name: text_of(path) for path in sorted(out.rglob("*")) if path.is_file()}
    assert {"plain.sqlite", "stdout", "stderr"} <= set(everything)
    assert "***" in everything["stdout"], "the server's echo was redacted"
    for name, text in everything.items():
        assert DISTINCTIVE not in text, name
        assert BASIC not in text, name
