"""No secret gets out, whatever an endpoint repeats of it."""

import base64
import json
import logging
import sys
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.config import OpenAIConfig
from slim_rl.http import Response
from slim_rl.partners.answers import AnswerReader, Fault
from slim_rl.partners.quoting import Secrets
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import QUESTION, ask_many, partner_of, text_of, view_after

KEY = "sk-" + "abcdefghij" * 6
BASIC = base64.b64encode(b"me:hush-8842aa").decode()
ECHO = "You sent {authorization}."
ECHOES = [
    Step(text="[message] {authorization}"),
    Step(text="{authorization}"),
    Step("status", status=200, body='{"model": "{authorization}", "choices": [{"message": {"content": "[message]"}}]}'),
    Step("status", status=400, code="context_length_exceeded", message=ECHO),
    Step("status", status=500, message="x" * 200 + "{authorization}" * 9),
    Step("status", status=418, code=KEY, message="teapot"),
    Step("status", status=400, message=f"{'x' * 215}{KEY}"),
    *(Step("status", status=status, message=ECHO, retry_after=0.01) for status in (401, 404, 429)),
    *map(Step, ("cut", "junk", "hang")),
]


def is_clean(text: str, secret: str = KEY) -> bool:
    return not any(secret[at : at + 12] in text for at in range(len(secret) - 11))


@pytest.mark.parametrize("headers", [{}, {"Authorization": f"Basic {BASIC}"}], ids=["key", "header"])
async def test_an_echo_is_in_no_reply_log_or_cassette(tmp_path: Path, caplog, capfd, monkeypatch, headers) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    for number, echo in enumerate(ECHOES):
        async with OpenAIServer(script=[Step(text="[message] up"), *[echo] * 9]) as server:
            settings = {"max_retries": 1, "request_seconds": 0.3 if echo.kind == "hang" else 20.0, "headers": headers}
            partner = partner_of(server, cassette=tmp_path / f"{number}.sqlite", **settings)
            await partner.act(view_after(QUESTION, seed=1))
            (outcome,) = await ask_many(partner, 1)
            assert {each["Authorization"] for each in server.headers} == {headers.get("Authorization", f"Bearer {KEY}")}
        if isinstance(outcome, BaseException):
            traceback.print_exception(outcome)
            print(vars(outcome))
        print(repr(outcome), partner.stopped, partner.identity, partner.endpoint.spend.total, partner.endpoint.spend)
        print(json.dumps(server.requests), text_of(tmp_path / f"{number}.sqlite"), file=sys.stderr)
    printed = capfd.readouterr()
    assert "***" in printed.out and "PartnerFailure" in printed.err and "HTTP" in caplog.text
    for written in (printed.out, printed.err, caplog.text):
        assert is_clean(written) and is_clean(written, BASIC)


@pytest.mark.parametrize("before", range(0, 70, 7))
def test_an_answer_that_is_none_is_redacted_before_it_is_cut(before: int) -> None:
    response = Response(200, ("x" * before + KEY).encode(), {})
    fault = AnswerReader(OpenAIConfig(), Secrets(KEY)).read(response, {"messages": []}, ever_answered=False)
    assert isinstance(fault, Fault) and "not a chat completion" in fault.why and is_clean(fault.why)


@given(st.text(), st.text())
def test_what_holds_no_secret_stays_as_it_is(before: str, after: str) -> None:
    secrets = Secrets(KEY, "a:b")
    assert secrets.redact(before) == before and is_clean(repr(secrets))
    assert secrets.redact(f"{before}{KEY}{after}") == f"{before}***{after}"
    assert Secrets("none").redact("none of them", 8) == "none of them", "a short key is no word of a reply's"
