"""What comes back from an endpoint, and what comes of it: a row of answers.txt each."""

import json
import logging
import re
import time
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple

import pytest

from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn, Usage
from slim_rl.environment import View
from slim_rl.partners.answers import REPLY_CHARS, guess_input, retry_after
from slim_rl.partners.openai_chat import OpenAIPartner
from tests.fakes.openai_server import HALF, OpenAIServer, Step
from tests.partners.openai_setup import ANSWER, GOOD_PLAN, QUESTION, VIEW, ask_many, partner_of, script, view_after

MODEL = "gpt-4.1-2025-04-14"
VIEWS = {"to a proposal": view_after(GOOD_PLAN), "later": view_after(QUESTION, "[message] 60.", QUESTION)}


MARKS = {"⏎": "\n", "<BOM>": "\ufeff", "<KEY>": "{authorization}", "<NINES>": "9" * 5000, r"\ud83d": HALF}
MARK = re.compile("|".join(map(re.escape, MARKS)))
LINES = (Path(__file__).parent / "answers.txt").read_text(encoding="utf-8").splitlines()
ROWS = [
    [MARK.sub(lambda mark: MARKS[mark[0]], cell) for cell in line.split(" | ")]
    for line in LINES
    if line and not line.startswith("#")
]


def step_of(answer: str) -> Step:
    """The step that a cell describes."""
    word, _, rest = answer.partition(" ")
    kind, _, ending = word.partition("/")
    if kind == "reply":
        return Step(text=rest, finish_reason=ending or "stop")
    if kind == "message":
        choice = {"message": json.loads(rest), "finish_reason": ending or "stop"}
        return Step("status", status=200, body=json.dumps({"choices": [choice]}))
    if kind == "HTTP":
        status, header, value, body = re.fullmatch(r"(\d+) ?(?:\[([\w-]+): (.*?)\] ?)?(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
        return Step("status", status=int(status), headers={header: value} if header else {}, body=body)
    return Step(kind, size=3)


def dated(answer: str) -> str:
    """An answer with the time that its marks stand for."""
    numbers = re.sub(r"<NOW\+(\d+)>", lambda mark: str(int(time.time()) + int(mark[1])), answer)
    return re.sub(r"<DATE\+(\d+)>", lambda mark: formatdate(time.time() + int(mark[1]), usegmt=True), numbers)


class Case(NamedTuple):
    """A row: what the server answers, to which view, and the outcome's text and thought."""

    server: OpenAIServer
    step: Step
    view: View
    answered: bool
    text: str
    thought: str | None

    async def reply(self, *steps: Step, **settings: object) -> tuple[OpenAIPartner, Turn]:
        """What the partner replies if the server answers so first, and the partner."""
        partner = partner_of(self.server, **settings)
        if self.answered:
            await partner.act(VIEW)
        self.server.requests.clear()
        script(self.server, *(steps or [self.step]))
        return partner, await partner.act(self.view)


async def _again(case: Case) -> None:
    tries = 3 if case.text == "busy" else 1  # which is more than max_retries allows for any other fault
    seconds = 1.0 if case.step.kind == "hang" else 20.0
    partner, turn = await case.reply(*[case.step] * tries, max_retries=1, request_seconds=seconds)
    usage = turn.usage
    assert usage is not None and (turn.text, usage.retries, usage.calls, usage.malformed) == (ANSWER, tries, 1, 0)
    assert (usage.input_tokens > 1.5 * guess_input(case.server.requests[-1])) == (case.text == "paid")
    assert partner.stopped is None


async def _stops(case: Case) -> None:
    case.server.meets = lambda body: case.step
    partner = partner_of(case.server, concurrency=1, reasoning_effort="low", extra={"top_k": 3})
    outcomes = await ask_many(partner, 4)
    assert all(isinstance(outcome, PartnerFailure) and case.text in str(outcome) for outcome in outcomes)
    assert partner.stopped is not None and len(case.server.times) <= 2, "tried once without a parameter that is named"


async def _fails(case: Case) -> None:
    with pytest.raises(PartnerFailure, match=rf"was refused: {re.escape(case.text)}"):
        await case.reply()
    assert len(case.server.requests) == 1
    assert (await case.reply(Step()))[1].text == ANSWER


async def _learns(case: Case) -> None:
    refused = case.text.split()
    case.server.meets = lambda body: case.step if any(name in body for name in refused) else None
    partner = partner_of(case.server)
    assert (await partner.act(VIEW)).text == ANSWER and (await partner.act(VIEW)).text == ANSWER
    assert len(case.server.times) == 2 + len(refused), "each is learned once"
    assert partner.identity["refused"] == refused
    kept = {"temperature", "seed", "max_tokens"} - set(refused)
    assert kept <= case.server.requests[-1].keys() and not set(refused) & case.server.requests[-1].keys()


async def _folds(case: Case) -> None:
    case.server.meets = lambda body: case.step if body["messages"][0]["role"] == "system" else None
    case.server.answer = lambda body: ANSWER
    partner = partner_of(case.server)
    assert (await partner.act(VIEW)).text == ANSWER
    rules, opening, *_ = partner.messages(VIEW)
    first = case.server.requests[-1]["messages"][0]
    assert first == {"role": "user", "content": f"{rules['content']}\n\n{opening['content']}"}


async def _plays(case: Case, asides: int = 0) -> None:
    _, turn = await case.reply()
    usage = turn.usage
    assert usage is not None and (turn.text, turn.thought) == (case.text, case.thought)
    assert (usage.asides, usage.malformed, usage.retries, usage.calls) == (asides, 0, 0, 1)


async def _aside(case: Case) -> None:
    await _plays(case, 1)


async def _malformed(case: Case) -> None:
    _, turn = await case.reply()
    expected = "[accept]" if case.view is VIEWS["to a proposal"] else ANSWER
    assert (turn.text, turn.thought) == (expected, case.thought)
    assert turn.usage is not None and (turn.usage.malformed, turn.usage.calls) == (1, 2)
    first, second = (request["messages"] for request in case.server.requests)
    assert second[: len(first) - 1] == first[:-1] and second[len(first) - 1]["content"].startswith(first[-1]["content"])
    assert second[-1]["role"] == "user" and case.text in second[-1]["content"]
    assert all(message["content"] for message in second)


async def _pauses(case: Case) -> None:
    endpoint = partner_of(case.server).endpoint
    script(case.server, case.step)
    response = await endpoint.send(
        "/chat/completions", {"model": case.server.model, "messages": [{"role": "user", "content": "x"}]}
    )
    found = retry_after(response.headers, response.content.decode())
    assert (found is None) == (case.text == "none")
    assert found is None or float(case.text) - 3 < found <= float(case.text)
    assert found or (await case.reply())[1].text == ANSWER


OUTCOMES = {f.__name__[1:]: f for f in (_again, _stops, _fails, _learns, _folds, _plays, _aside, _malformed, _pauses)}


@pytest.mark.parametrize(("name", "answer", "outcome"), ROWS, ids=[name for name, *_ in ROWS])
async def test_answer_has_its_outcome(
    server: OpenAIServer, name: str, answer: str, outcome: str, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1")
    (kind, _, rest), when = outcome.partition(": "), name.partition(":")[0]
    text, _, thought = rest.partition(" // ")
    view = VIEWS.get(when, VIEW)
    await OUTCOMES[kind](Case(server, step_of(dated(answer)), view, when == "after an answer", text, thought or None))
    assert "sk-secret" not in caplog.text
    errors = [record for record in caplog.records if record.levelno == logging.ERROR and "slim_rl" in record.name]
    assert len(errors) == (kind == "stops"), "said once"


async def test_of_two_that_exclude_each_other_one_is_left_out(server: OpenAIServer) -> None:
    both = Step("status", status=400, message="`temperature` and `top_p` cannot both be specified for this model.")
    server.meets = lambda body: both if {"temperature", "top_p"} <= body.keys() else None
    partner = partner_of(server, top_p=0.9)
    assert (await partner.act(VIEW)).text == ANSWER and partner.identity["refused"] == ["temperature"]


async def test_replies_all_thought_end_the_game(server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    thought = step_of('message/length {"content": null, "reasoning_content": "Hm."}')
    script(server, *[thought] * 2, *[Step(text="[no] tag")] * 2)
    partner = partner_of(server, malformed_retries=1)
    for words, thoughts in (("all thought, and max_tokens=300 left none", "Hm.\n\nHm."), ("Begin with a tag", None)):
        with pytest.raises(
            PartnerFailure, match=rf"2 malformed replies in a row; the last error: .*{words}"
        ) as failure:
            await partner.act(VIEW)
        assert failure.value.thought == thoughts and failure.value.reason is StopReason.PARTNER_ERRORS
    assert len(server.requests) == 4
    assert (
        f"{MODEL} uses all of partner.openai.max_tokens=300 for thoughts. Raise it, or set partner.openai"
        in caplog.text
    )


async def test_failure_after_malformed_replies_has_thought_and_cost(server: OpenAIServer) -> None:
    script(server, Step(text="<think>Hm.</think>[no] tag"), step_of("HTTP 413 Too large"))
    with pytest.raises(PartnerFailure, match="HTTP 413") as failure:
        await partner_of(server).act(VIEW)
    assert failure.value.thought == "Hm." and isinstance(failure.value.usage, Usage)
    assert (failure.value.usage.calls, failure.value.usage.malformed) == (1, 1)


async def test_long_texts_are_bounded(server: OpenAIServer) -> None:
    script(server, Step(text="[message] " + "so " * 300_000))
    reply = await partner_of(server).act(VIEW)
    assert reply.text == ANSWER and reply.usage is not None and reply.usage.malformed == 1
    last = server.requests[1]["messages"]
    assert "too long" in last[-1]["content"] and len(last[-2]["content"]) <= REPLY_CHARS
    for code in ("context_length_exceeded", f"context_length_exceeded{'x' * 10_000}"):
        script(server, Step("status", status=400, code=code, message="x" * 1_500_000))
        with pytest.raises(PartnerFailure) as failure:
            await partner_of(server).act(VIEW)
        assert len(str(failure.value)) < 1000
