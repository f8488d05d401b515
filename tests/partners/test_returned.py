"""What may come back from an endpoint, one row per case: what a server on loopback sends, and what becomes of the game and the run."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from slim_rl.config import ChatPolicyConfig, OpenAIConfig
from slim_rl.dialogue.players import PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.partners.openai_chat import ChatPolicy, OpenAIPartner
from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import (
    ANSWER,
    GOOD_PLAN,
    QUESTION,
    VIEW,
    ask_many,
    partner_config,
    partner_of,
    script,
    view_after,
)
from tests.paths import ROOT

MODEL = "gpt-4.1-2025-04-14"


def inside(error: Any, **others: Any) -> Step:
    """A response of status 200 that holds an error."""
    return Step("status", status=200, body=json.dumps({"error": error, **others}))


def said(status: int, message: str, **error: Any) -> Step:
    """An error response in OpenAI's form."""
    return http(status, {"error": {"message": message, **error}})


def http(status: int, error: Any, **step: Any) -> Step:
    """An error response in a server's own form."""
    return Step("status", status=status, body=error if isinstance(error, str) else json.dumps(error), **step)


TPM = "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000."
GROQ_413 = said(413, TPM, type="tokens", code="rate_limit_exceeded")

# --- asked again, and then played: whether it was paid for

AGAIN: dict[str, tuple[Step, bool]] = {
    "429": (Step("status", status=429, code="rate_limit_exceeded", message="Slow down."), False),
    "498": (Step("status", status=498), False),
    "500": (Step("status", status=500), False),
    "502": (Step("status", status=502), False),
    "503": (Step("status", status=503, retry_after=0.01), False),
    "408": (Step("status", status=408), False),
    "a connection that is cut": (Step("cut"), False),
    "one that is cut midway": (Step("cut_midway"), False),
    "no answer": (Step("hang"), False),
    "no JSON": (Step("junk"), True),
    "half a reply, finish_reason error": (Step(text="[message] Ava Li on", finish_reason="error"), True),
    "half a reply, an engine's abort": (Step(text="[message] Ava Li on", finish_reason="abort"), True),
    "half a reply, DeepSeek's overload": (Step(text="[message] A", finish_reason="insufficient_system_resource"), True),
    "an error next to the choices": (Step(text="[message] Ava", top={"error": {"message": "Upstream."}}), True),
    "an error in the choice": (Step(text="[message] A", choice={"error": {"code": 502, "message": "Upstream."}}), True),
    "429 within 200": (inside({"code": 429, "message": "Slow down."}), False),
    "429 within 200, as a string": (inside({"code": "429", "message": "Slow down."}), False),
    "a code's name within 200": (inside({"code": "rate_limit_exceeded", "message": "Slow down."}), False),
    "502 within 200": (inside({"code": 502, "message": "Upstream."}), False),
    "words within 200": (inside("The engine is overloaded."), False),
    "vLLM's error object within 200": (http(200, {"object": "error", "message": "Busy.", "code": 503}), False),
    "a detail within 200": (http(200, {"detail": "Try again."}), False),
    "Groq's 413": (GROQ_413, False),
    "a 403 for too many requests": (http(403, {"message": "API rate limit exceeded."}), False),
    "529": (http(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), False),
    "503 with a date": (
        http(503, "Busy", retry_after="Fri, 01 Jan 2021 00:00:00 GMT"),
        False,
    ),
    "llama.cpp loads its model": (said(503, "Loading model", code=503), False),
    "a list of errors": (http(503, [{"error": {"code": 503, "status": "UNAVAILABLE", "message": "Later."}}]), False),
    "a web page of status 200": (Step("html"), True),
    "no choices": (Step("empty"), True),
    "choices that are null": (Step(top={"choices": None}), True),
    "a choice that is null": (Step(top={"choices": [None]}), True),
    "a stream, though none was asked for": (http(200, 'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'), True),
}


@pytest.mark.parametrize(("step", "billed"), AGAIN.values(), ids=AGAIN)
async def test_a_reply_that_is_none_is_asked_again(server: OpenAIServer, step: Step, billed: bool) -> None:
    script(server, step)
    patience = 0.5 if step.kind == "hang" else 20.0
    partner = partner_of(server, request_seconds=patience)
    reply = await partner.act(VIEW)
    assert reply.text == ANSWER and reply.usage is not None
    assert (reply.usage.retries, reply.usage.calls, reply.usage.malformed) == (1, 1, 0)
    tokens = (await partner_of(server).act(VIEW)).usage.input_tokens  # type: ignore[union-attr]
    assert (reply.usage.input_tokens > 1.5 * tokens) == billed
    assert partner.stopped is None


BUSY = [inside({"code": 429, "message": "Slow down."}), GROQ_413]


@pytest.mark.parametrize("step", BUSY, ids=["429 within 200", "Groq's 413"])
async def test_busy_is_asked_again_beyond_the_retries(server: OpenAIServer, step: Step) -> None:
    script(server, *[step] * 12)
    reply = await partner_of(server, max_retries=1).act(VIEW)
    assert reply.usage is not None and reply.usage.retries == 12


# --- the run stops at the first

MONEY = "the account has no money left"
KEY = r"is the key in \$OPENAI_API_KEY right"
ADDRESS = r"are partner\.openai\.base_url and the model .* right"
NAME = f"is the model {MODEL} right"
STOPS: dict[str, tuple[Step, str]] = {
    "401": (said(401, "No."), r"HTTP 401: No\. \(is the key in \$OPENAI_API_KEY right\?\)"),
    "403": (said(403, "Country."), "HTTP 403: Country"),
    "404": (
        said(404, "The model `m` does not exist.", code="model_not_found"),
        rf"HTTP 404 model_not_found: The model `m` does not exist\. \({NAME}",
    ),
    "400": (said(400, "No."), "does the endpoint know every parameter"),
    "402": (said(402, "Insufficient credits", code=402), MONEY),
    "402 within 200": (inside({"code": 402, "message": "This request requires more credits."}), MONEY),
    "quota as 429": (
        http(429, {"error": {"message": "Exceeded.", "type": "insufficient_quota", "code": "insufficient_quota"}}),
        MONEY,
    ),
    "quota by its type alone": (
        said(429, "No.", type="exceeded_current_quota_error"),
        MONEY,
    ),
    "quota within 200": (inside({"code": "insufficient_quota", "message": "Pay."}), MONEY),
    "Anthropic's balance as 400": (
        said(400, "Your credit balance is too low to access the API."),
        MONEY,
    ),
    "Gemini's key as 400": (http(400, [{"error": {"code": 400, "message": "API key not valid."}}]), KEY),
    "a wrong key within 200": (inside({"code": "invalid_api_key", "message": "No."}), KEY),
    "a wrong key within 500": (said(500, "AuthenticationError: Incorrect API key"), KEY),
    "an unknown model within 200": (inside({"code": "model_not_found", "message": "No."}), NAME),
    "401 within 200": (inside({"code": 401, "message": "No auth credentials found"}), KEY),
    "OpenRouter's model": (said(400, "m is not a valid model ID", code=400), NAME),
    "LiteLLM's model": (said(400, "Invalid model name passed in model=m", code="400"), NAME),
    "Azure's deployment": (said(404, "No.", code="DeploymentNotFound"), ADDRESS),
    "an address without /v1": (http(404, "404 page not found"), ADDRESS),
    "LM Studio's address": (inside("Unexpected endpoint or method. (POST /chat/completions)"), ADDRESS),
    "a wrong path": (http(405, "Method not allowed"), r"is partner\.openai\.base_url right"),
    "a server of files": (http(501, "Unsupported method ('POST')"), r"is partner\.openai\.base_url right"),
    "a parameter of the config": (
        said(400, "Unknown parameter: 'reasoning_effort'."),
        r"set partner\.openai\.reasoning_effort",
    ),
    "a value of the config": (
        http(422, {"detail": [{"loc": ["body", "temperature"], "msg": "Input should be less than 1", "type": "less"}]}),
        r"set partner\.openai\.temperature to a value that it takes",
    ),
    "a value, in words": (
        http(422, {"error": "Input validation error: `temperature` must be strictly positive"}),
        r"set partner\.openai\.temperature to a value that it takes",
    ),
    "too many tokens asked for": (
        said(400, "max_tokens is too large: 300. This model supports at most 256."),
        r"set partner\.openai\.max_tokens to a value that it takes",
    ),
    "a key of extra": (
        http(422, {"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs are not permitted"}]}),
        r"remove top_k from partner\.openai\.extra",
    ),
}


@pytest.mark.parametrize(("step", "sentence"), STOPS.values(), ids=STOPS)
async def test_what_a_person_must_change_stops_the_run(
    server: OpenAIServer, step: Step, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.meets = lambda body: step
    partner = partner_of(server, concurrency=1, reasoning_effort="low", extra={"top_k": 3})
    outcomes = await ask_many(partner, 4)
    assert all(isinstance(outcome, PartnerFailure) for outcome in outcomes)
    assert partner.stopped is not None and len(server.times) <= 2, "tried once without a parameter that is named"
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    with pytest.raises(PartnerFailure, match=sentence):
        await partner.act(VIEW)


# --- one game fails

FAILS: dict[str, Step] = {
    "OpenAI's context": Step("status", status=400, code="context_length_exceeded", message="Too long."),
    "vLLM's context": http(
        400, {"object": "error", "message": "This model's maximum context length is 99.", "code": 400}
    ),
    "llama.cpp's context": http(400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "No."}}),
    "Azure's content filter": said(400, "Filtered.", code="content_filter"),
    "OpenRouter's moderation": said(403, "Input was flagged: violence", code=403),
    "a context's name within 200": inside({"code": "context_length_exceeded", "message": "No."}),
    "a context within 500": http(500, {"error": "the input exceeds the context length"}),
    "a context within 200": inside({"code": 400, "message": "maximum context length is 99"}),
    "too large a body": http(413, "Payload too large"),
}


@pytest.mark.parametrize("step", FAILS.values(), ids=FAILS)
async def test_a_request_at_fault_ends_its_game_alone(server: OpenAIServer, step: Step) -> None:
    script(server, step)
    partner = partner_of(server)
    with pytest.raises(PartnerFailure, match=r"was refused: HTTP \d+"):
        await partner.act(VIEW)
    assert partner.stopped is None and len(server.times) == 1
    assert (await partner.act(VIEW)).text == ANSWER


# --- learned
LITELLM = (
    "litellm.UnsupportedParamsError: openai does not support parameters: ['seed', 'temperature'], for model=o9. To drop these, "
    "set `litellm.drop_params=True`; max_tokens stays."
)

LEARNED: dict[str, tuple[Step, list[str]]] = {
    "LiteLLM": (said(400, LITELLM, type="None", param=None, code="400"), ["seed", "temperature"]),
    "LiteLLM, one value": (
        said(400, "gpt-5 models don't support temperature=0.0. Only temperature=1 is supported."),
        ["temperature"],
    ),
    "Mistral": (
        http(
            422,
            {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]},
        ),
        ["seed"],
    ),
    "Groq": (said(400, "property 'seed' is unsupported"), ["seed"]),
    "Gemini": (http(400, [{"error": {"code": 400, "message": 'Unknown name "seed": Cannot find field.'}}]), ["seed"]),
    "OpenAI, another name": (
        said(400, "'max_tokens' is not supported with this model. Use 'max_completion_tokens'."),
        ["max_tokens"],
    ),
    "a list of what it takes": (
        said(400, "unknown field `seed`, expected one of `messages`, `temperature`, `max_tokens`"),
        ["seed"],
    ),
    "within 200": (inside({"code": 400, "message": "Unsupported parameter(s): `seed`"}), ["seed"]),
    "deprecated": (said(400, "`temperature` is deprecated for this model."), ["temperature"]),
    "out of range": (said(400, "seed must be between 0 and 65535"), ["seed"]),
    "in camel case": (
        http(400, [{"error": {"message": 'Unknown name "maxTokens": Cannot find field.'}}]),
        ["max_tokens"],
    ),
    "as a word": (said(400, "Temperature must be 1 for this model."), ["temperature"]),
    "an argument within 500": (said(500, "TypeError: create() got an unexpected keyword argument 'seed'"), ["seed"]),
}


@pytest.mark.parametrize(("step", "refused"), LEARNED.values(), ids=LEARNED)
async def test_a_refused_parameter_is_learned(server: OpenAIServer, step: Step, refused: list[str]) -> None:
    server.meets = lambda body: step if any(name in body for name in refused) else None
    partner = partner_of(server)
    assert (await partner.act(VIEW)).text == ANSWER and (await partner.act(VIEW)).text == ANSWER
    assert len(server.times) == 2 + len(refused), "each is learned once"
    assert partner.identity["refused"] == refused
    kept = {"temperature", "seed", "max_tokens"} - set(refused)
    assert kept <= server.requests[-1].keys() and not set(refused) & server.requests[-1].keys()


async def test_of_two_that_exclude_each_other_one_is_left_out(server: OpenAIServer) -> None:
    both = said(400, "`temperature` and `top_p` cannot both be specified for this model.")
    server.meets = lambda body: both if {"temperature", "top_p"} <= body.keys() else None
    partner = partner_of(server, top_p=0.9)
    assert (await partner.act(VIEW)).text == ANSWER and partner.identity["refused"] == ["temperature"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "System role not supported"),
        (400, "Conversation roles must alternate user/assistant/..."),
        (400, "Expected last role User or Tool for serving but got system"),
        (422, "loc: role, msg: Input should be 'user' or 'assistant', type: literal_error, input: system"),
        (500, "raise_exception('System role not supported')"),
    ],
)
async def test_refused_system_role_begins_the_first_message(server: OpenAIServer, status: int, words: str) -> None:
    refusal = http(status, {"error": {"message": words}})
    server.meets = lambda body: refusal if body["messages"][0]["role"] == "system" else None
    server.answer = lambda body: ANSWER
    partner = partner_of(server)
    assert (await partner.act(VIEW)).text == ANSWER
    rules, opening, *_ = partner.messages(VIEW)
    first = server.requests[-1]["messages"][0]
    assert first == {"role": "user", "content": f"{rules['content']}\n\n{opening['content']}"}


@pytest.mark.parametrize("first", [0, 1])
async def test_spent_budget_of_tokens_is_a_cut_reply(server: OpenAIServer, first: int) -> None:
    """OpenAI's error of status 400, for the first request or a later one."""
    spent = said(400, "The message is not finished: max_tokens or output limit was reached.")
    server.meets = lambda body: spent if len(server.times) == 1 + first else None
    partner = partner_of(server)
    assert [(await partner.act(VIEW)).text for _ in range(2)] == [
        ANSWER
    ] * 2 and partner.endpoint.spend.total.malformed == 0


# --- answers in other forms, which are played

PLAYED: dict[str, Step] = {
    "parts": Step(part={"content": [{"type": "text", "text": "[message] "}, {"type": "text", "text": "60."}]}),
    "parts of another type": Step(part={"content": [{"type": "output_text", "text": "[message] 60."}]}),
    "parts without a type": Step(part={"content": [{"text": "[message] "}, "60."]}),
    "one part": Step(part={"content": {"type": "text", "text": "[message] 60."}}),
    "a part with a picture": Step(part={"content": [{"type": "image_url"}, {"type": "text", "text": "[message] 60."}]}),
    "Mistral's parts": Step(
        part={
            "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"text": "[message] 60."}]
        }
    ),
    "a completion of the older form": Step(top={"choices": [{"text": "[message] 60.", "finish_reason": "stop"}]}),
    "no finish_reason": Step(text="[message] 60.", choice={"finish_reason": None}),
    "an unknown finish_reason": Step(text="[message] 60.", finish_reason="eos"),
    "an error that is null": Step(text="[message] 60.", top={"error": None}),
    "null usage": Step(text="[message] 60.", top={"usage": None}),
    "usage without details": Step(text="[message] 60.", usage={"prompt_tokens": 900, "completion_tokens": 9}),
    "a tag in other words": Step(text="**[message]** 60."),
    "a thought in tags": Step(text="<think>\nHm.\n</think>\n\n[message] 60."),
    "a thought apart": Step(text="[message] 60.", part={"reasoning_content": "Hm."}),
}


@pytest.mark.parametrize("step", PLAYED.values(), ids=PLAYED)
async def test_an_answer_of_another_form_is_played(server: OpenAIServer, step: Step) -> None:
    script(server, step)
    reply = await partner_of(server).act(VIEW)
    assert reply.text.replace("*", "") == "[message] 60." and reply.usage is not None
    assert (reply.usage.retries, reply.usage.malformed, reply.usage.asides) == (0, 0, 0)
    assert reply.thought == ("Hm." if "Hm." in str(step) else None)


@pytest.mark.parametrize("before", ["\ufeff", ": keep-alive\n\n", " \n"])
async def test_what_stands_before_the_json_is_left_out(server: OpenAIServer, before: str) -> None:
    choice = {"message": {"content": "[message] 60."}, "finish_reason": "stop"}
    script(server, http(200, before + json.dumps({"choices": [choice], "usage": {"prompt_tokens": 900}})))
    assert (await partner_of(server).act(VIEW)).text == "[message] 60."


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_an_answer_compressed_unasked_is_played(server: OpenAIServer, coding: str) -> None:
    script(server, Step(coding, size=3))
    assert (await partner_of(server).act(VIEW)).text == "[message] xxx"


# What is not the action, which nobody is to read.
BESIDE: dict[str, Step] = {
    "a thought in other marks": Step(text="<reasoning>Ava Li is 60; stay shy.</reasoning>\n[message] 60."),
    "a thought in a namespace's marks": Step(text="<seed:think>Ava Li is 60.</seed:think>[message] 60."),
    "a thought in Magistral's marks": Step(text="[THINK]Ava Li is 60.[/THINK]60."),
    "a thought in Kimi's marks": Step(text="◁think▷Ava Li is 60.◁/think▷60."),
    "a thought under a heading": Step(text="**Reasoning:** Ava Li is 60.\n\n**Answer:** [message] 60."),
    "a thought in marks at the end": Step(text="[message] 60. <scratchpad>Was that shy?</scratchpad>"),
    "a control token": Step(text="[message] 60.<|im_end|>"),
    "a token of Gemma's": Step(text="[message] 60.<turn|>"),
    "a token of EXAONE's": Step(text="[message] 60.[|endofturn|]"),
    "the end of a sequence": Step(text="[message] 60.[EOS]"),
    "another turn": Step(text="[message] 60.<|im_end|>\n<|im_start|>user\n[message] And BLEU?"),
    "a turn from its beginning": Step(text="<|im_start|>assistant\n[message] 60.<|im_end|>"),
    "the other player's line": Step(text="[message] 60.\nOther player: And Ava Li on BLEU?\nMe: 60."),
    "the other player's line, with a dash": Step(text="[message] 60.\nOther Player - And BLEU?"),
    "the other player's line, under a heading": Step(text="[message] 60.\n## User\nAnd BLEU?"),
    "the other player's line, below a rule": Step(text="[message] 60.\n***\nPlayer one: And BLEU?"),
    "words below a rule": Step(text="[message] 60.\n---\nAva Li is 60; stay shy."),
    "a mark without a pair": Step(text="[message] 60.</answer>"),
    "the other player's tag": Step(text="[message] 60.\n[them] And BLEU?"),
    "another instruction": Step(text="[message] 60.\n### Instruction:\nAsk."),
    "the other player's line, quoted": Step(text="[message] 60.\n> And Ava Li on BLEU?"),
}


@pytest.mark.parametrize("step", BESIDE.values(), ids=BESIDE)
async def test_what_is_not_the_action_is_not_said(server: OpenAIServer, step: Step) -> None:
    script(server, step)
    reply = await partner_of(server).act(VIEW)
    assert reply.text == "[message] 60." and reply.usage is not None and reply.usage.malformed == 0


# --- malformed: asked again with the reason, which is kept

NOTHING = {"content": None}
CUT = {"finish_reason": "length"}
MALFORMED: dict[str, tuple[Step, str, str | None]] = {
    "OpenAI's limit": (Step(text="[message] A", finish_reason="length"), "too long", None),
    "an object": (Step(text='{"thought": "60", "message": "No."}'), "Begin with a tag", None),
    "a line of whoever": (Step(text="[message] See:\nReviewer: and BLEU?"), 'begins with "Reviewer:"', None),
    "a label": (Step(text="Thought: it is 60.\nNo."), "Begin with a tag", None),
    "all thought": (Step(part=NOTHING | {"reasoning_content": "Hm."}), "only a thought", "Hm."),
    "all thought, OpenRouter's name": (Step(part=NOTHING | {"reasoning": "Hm."}), "only a thought", "Hm."),
    "all thought, cut": (Step(part=NOTHING | {"reasoning_content": "Hm."}, choice=CUT), "all thought", "Hm."),
    "all thought, unseen": (Step(part={"content": ""}, choice=CUT), "all thought", None),
    "all thought, in the text": (Step(text="<think>Hm.", choice=CUT), "all thought", "Hm."),
    "refusal": (
        Step(part=NOTHING | {"refusal": "I cannot."}),
        "You refused to answer: I cannot.",
        "(It refused: I cannot.)",
    ),
    "refusal, as a part": (
        Step(part={"content": [{"type": "refusal", "refusal": "I cannot."}]}),
        "You refused to answer: I cannot.",
        "(It refused: I cannot.)",
    ),
    "tool calls": (Step(part=NOTHING | {"tool_calls": [{"id": "1"}]}), "call of a tool", None),
    "a content filter": (Step(text="", finish_reason="content_filter"), "content filter", None),
    "Gemini's filter": (Step(text="[message] A", finish_reason="SAFETY"), "content filter", None),
    "Anthropic's limit": (Step(text="[message] A", finish_reason="max_tokens"), "too long", None),
    "Mistral's limit": (Step(text="[message] A", finish_reason="model_length"), "too long", None),
    "repetition": (Step(text="[message] A A A", finish_reason="repetition"), "too long", None),
    "nothing": (Step(text=""), "Your reply was empty", None),
}


@pytest.mark.parametrize(("step", "why", "thought"), MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_reply_is_kept_and_asked_again(
    server: OpenAIServer, step: Step, why: str, thought: str | None
) -> None:
    script(server, step)
    reply = await partner_of(server).act(VIEW)
    assert reply.text == ANSWER and reply.usage is not None and reply.usage.malformed == 1
    assert why in server.requests[1]["messages"][-1]["content"] and reply.thought == thought


async def test_replies_all_thought_end_the_game(server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    server.meets = lambda body: Step(part=NOTHING | {"reasoning_content": "Hm."}, choice=CUT)
    with pytest.raises(PartnerFailure, match="all thought, and max_tokens=300 left none") as failure:
        await partner_of(server, malformed_retries=1).act(VIEW)
    assert failure.value.thought == "Hm.\n\nHm." and failure.value.reason is StopReason.PARTNER_ERRORS
    assert len(server.requests) == 2
    assert [r.getMessage() for r in caplog.records] == [
        f"{MODEL} uses all of partner.openai.max_tokens=300 for thoughts. Raise it, or set "
        "partner.openai.reasoning_effort=low."
    ]


async def test_a_policys_refusal_and_thoughts_are_recorded(server: OpenAIServer) -> None:
    script(server, Step(part={"content": None, "refusal": "I cannot.", "reasoning_content": "Hm."}))
    policy = ChatPolicy(ChatPolicyConfig(model=server.model, base_url=server.url))
    reply = await policy.act(view_after(seat=0))
    assert (reply.text, reply.thought) == ("", "Hm.\n\n(It refused: I cannot.)")


# --- words outside the action

OUTSIDE: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "before": ((QUESTION,), "I see Ava on GLUE, 90.\n\n[message] 60.", "[message] 60.", "I see Ava on GLUE, 90."),
    "before, in one line": ((QUESTION,), "Sure! [message] 60.", "[message] 60.", "Sure!"),
    "before, and it names a tag": ((QUESTION,), "I use [message].\n[message] 60.", "[message] 60.", "I use [message]."),
    "after": ((QUESTION,), "[message] 60.\n\nI told only that.", "[message] 60.", "I told only that."),
    "after, as a note": ((QUESTION,), "[message] 60.\nNote: GLUE is 90.", "[message] 60.", "Note: GLUE is 90."),
    "after an acceptance": ((GOOD_PLAN,), "[accept]\n\nIt is worth 90%.", "[accept]", "It is worth 90%."),
    "both": ((QUESTION,), "Hm.\n[message] 60.\n\nDone.", "[message] 60.", "Hm.\n\n\nDone."),
}


@pytest.mark.parametrize(("heard", "text", "action", "rest"), OUTSIDE.values(), ids=OUTSIDE)
async def test_one_action_is_played_and_the_rest_counted(
    server: OpenAIServer, heard: tuple[str, ...], text: str, action: str, rest: str
) -> None:
    script(server, Step(text=text))
    reply = await partner_of(server).act(view_after(*heard))
    assert reply.text == action and reply.thought is not None and reply.usage is not None
    assert reply.thought.split() == rest.split() and reply.usage.asides == 1
    assert (reply.usage.malformed, len(server.requests)) == (0, 1)


@pytest.mark.parametrize(
    "text", ["[message] My scores:\n\nAva Li: 60\n\n- Daniel Nguyen: 30", "[message] One.\nTwo.", "> [message] 60."]
)
async def test_a_message_of_more_lines_stays_whole(server: OpenAIServer, text: str) -> None:
    script(server, Step(text=text))
    reply = await partner_of(server).act(VIEW)
    assert reply.text == text and reply.usage is not None and reply.usage.asides == 0 and reply.thought is None


async def test_a_first_reply_without_a_tag_is_a_message(server: OpenAIServer) -> None:
    script(server, Step(text="It is 60."))
    reply = await partner_of(server).act(VIEW)
    assert reply.text == "[message] It is 60." and len(server.requests) == 1
    script(server, Step(text="I agree."), Step(text="[accept]"))
    assert (await partner_of(server).act(view_after(GOOD_PLAN))).text == "[accept]", "a proposal waits for a tag"


# --- a prompt that is cut

USAGES: dict[str, tuple[dict[str, Any], bool]] = {
    "cut": ({"prompt_tokens": 130, "completion_tokens": 9}, True),
    "cut to next to nothing": ({"prompt_tokens": 20, "completion_tokens": 9}, True),
    "whole": ({"prompt_tokens": 1300, "completion_tokens": 9}, False),
    "without the cached": (
        {"prompt_tokens": 130, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1170}},
        False,
    ),
    "not told": ({"prompt_tokens": 0, "completion_tokens": 9}, False),
}


@pytest.mark.parametrize(("usage", "cut"), USAGES.values(), ids=USAGES)
async def test_a_prompt_that_is_cut_is_warned_of_once(
    server: OpenAIServer, usage: dict[str, Any], cut: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server.meets = lambda body: Step(usage=usage)
    partner = partner_of(server)
    assert sum(isinstance(outcome, Turn) for outcome in await ask_many(partner, 5)) == 5
    warned = [text for text in partner.endpoint.warned.values() if "cuts prompts without saying so" in text]
    assert len(warned) == cut and caplog.text.count("cuts prompts") == cut


# --- how it is reached


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_on_loopback_is_reached_without_a_proxy(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, variable: str, host: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    partner = OpenAIPartner(partner_config(server.url.replace("127.0.0.1", host), max_retries=0).openai)
    assert (await partner.act(VIEW)).text == ANSWER


async def test_another_server_is_reached_by_the_proxy(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-1")
    partner = OpenAIPartner(partner_config("http://partner.invalid/v1", max_retries=0).openai)
    assert (await partner.act(VIEW)).text == ANSWER


async def test_headers_and_query_are_sent(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1")
    seen: list[str] = []
    server.seen = seen.append
    partner = partner_of(server, headers={"api-key": "{key}", "X-Team": "one"}, query={"api-version": "2024-10-21"})
    script(server, Step("status", status=500, message="{authorization}, sk-secret-1, one"))
    assert (await partner.act(VIEW)).text == ANSWER
    sent = {name.lower(): value for name, value in server.headers[-1].items()}
    assert (sent["api-key"], sent["x-team"]) == ("sk-secret-1", "one")
    assert seen == ["api-version=2024-10-21"] * 2 and "sk-secret" not in json.dumps(partner.identity)


@pytest.mark.parametrize("headers", [{"content-length": "3"}, {"X-A": "a\nb"}, {"X A": "b"}, {"": "b"}])
def test_a_header_that_cannot_be_set_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="cannot be sent: remove or correct it"):
        OpenAIPartner(partner_config("http://localhost:1/v1", headers=headers).openai)


@pytest.mark.parametrize(
    "key", ["model", "max_completion_tokens", "seed", "n", "stream", "messages", "tools", "service_tier", "api_key"]
)
def test_extra_takes_no_key_that_has_a_setting(key: str) -> None:
    for section in (OpenAIConfig, ChatPolicyConfig):
        with pytest.raises(ValidationError, match=f"{key} cannot be sent: it has a setting"):
            section(extra={key: 4})


# --- open files

MANY = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from tests.partners.openai_setup import QUESTION, partner_config, view_after
from slim_rl.games.matching.partners.chat import MatchingChatPartner

async def main():
    partner = MatchingChatPartner(partner_config(sys.argv[1], concurrency=int(sys.argv[2]), cassette=sys.argv[3]).openai)
    views = [view_after(QUESTION, seed=seed) for seed in range(320)]
    replies = await asyncio.gather(*(partner.act(view) for view in views), return_exceptions=True)
    print(sum(not isinstance(reply, Exception) for reply in replies), *partner.endpoint.warned.values(), sep="\\n")

asyncio.run(main())
"""


def test_concurrency_fits_the_limit_of_open_files(tmp_path: Any) -> None:
    from tests.fakes.openai_server import serving

    with serving(latency=0.2) as server:
        command = [sys.executable, "-c", MANY, server.url, "320", str(tmp_path / "a.sqlite")]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        assert 30 < server.busiest < 200
    assert said == ["320"]
