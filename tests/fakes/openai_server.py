"""An OpenAI-compatible chat-completions server on loopback that can misbehave in every way a real one does.

It checks requests as the real API does (shape, key, model) and answers in its format, usage and cached tokens included. What the
next requests meet is a script of `Step`s; after it, all are answered.

    async with OpenAIServer(script=[Step("status", status=429, retry_after=0.1)]) as server:
        ... server.url ...
"""

import asyncio
import gzip
import json
import re
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.serving import Server

ODD_USAGE: tuple[Any, ...] = (
    {"prompt_tokens": 10**12, "completion_tokens": -5, "prompt_tokens_details": {"cached_tokens": 10**9}},
    {"prompt_tokens": 1e30, "completion_tokens": "many", "prompt_tokens_details": None},
    {"prompt_tokens": -1, "completion_tokens": None, "prompt_tokens_details": {"cached_tokens": -10}},
    "nothing",
)
# Parameters that reasoning models refuse, with the message that the real API has for each
REFUSALS = {
    name: f"Unsupported parameter: '{name}' is not supported with this model." for name in ("top_p", "seed")
} | {
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "temperature": "Unsupported value: 'temperature' does not support {value} with this model. Only the default (1) value is supported.",
}
HALF = "\ud83d"  # of a character outside the basic plane


@dataclass(frozen=True)
class Step:
    """What one request meets.

    Attributes:
        kind: ``answer``, ``status`` (an error response), ``cut`` (the connection is reset), ``cut_midway`` (in the middle of the
            body), ``junk`` (200 with a body that is not JSON), ``hang`` (no answer ever), ``huge`` (an answer of `size` bytes),
            ``endless``, ``gzip`` and ``deflate`` (`size` bytes of text, compressed though that was not asked for), or ``deep`` (JSON
            within JSON without end).
        seconds: waits so long first.
        text: what to answer; None: what the server's `answer` says.
        usage: of an answer; True: the true one, None: left out.
        size: see `kind`.
        body: of a response of `status`, in place of OpenAI's own form of an error.
        status, code, param, message: of an error response.
        retry_after: its Retry-After header, verbatim.
        headers: its other headers.
        finish_reason: of an answer.

    ``{authorization}`` in a text, a message and a body is what the client sent.
    """

    kind: str = "answer"
    seconds: float = 0.0
    text: str | None = None
    status: int = 500
    code: str | None = None
    param: str | None = None
    message: str = "The server had an error while processing your request."
    body: str | None = None
    retry_after: float | str | None = None
    finish_reason: str = "stop"
    headers: Mapping[str, str] = field(default_factory=dict)
    usage: Any = True
    size: int = 20_000_000


def shy_answer(body: dict[str, Any]) -> str:
    """A partner that keeps to the rules: looks the asked pair up in the table it was sent, and accepts proposals."""
    messages = body["messages"]
    # What the other player said stands behind "> "; only the last of that is answered.
    heard = [[line[2:] for line in m["content"].split("\n") if line.startswith("> ")] for m in messages[1:]]
    last = "\n".join(next(filter(None, reversed(heard)), []))
    if last.lstrip().startswith("[propose]"):
        return "[accept]"
    table = {}
    for line in messages[1]["content"].splitlines():
        reviewer, _, cells = line.partition(": ")
        for paper, value in re.findall(r"([^,\s]+) (\d+|\?)", cells):
            table[reviewer, paper] = value.replace("?", "no score")
    asked = [(r, p) for r, p in table if r.split()[0].lower() in last.lower() and p.lower() in last.lower()]
    if "?" in last and asked:
        return "[message] " + " ".join(f"{r} on {p}: {table[r, p]}." for r, p in asked)
    return "[message] Hard to say. You can ask me about one reviewer on one paper."


@dataclass
class OpenAIServer(Server):
    """See the module's docstring.

    Attributes:
        answer: request body -> reply text, for requests whose step gives none.
        model: the one model it serves, and the snapshot it names.
        key: the bearer token it requires; None: no token.
        meets: request body -> the step that it meets, or None for the script's or a drawn one.
        refuses: the parameters of `REFUSALS` that the model does not take; a request hears of one at a time.
        shutdown: the date in /v1/models on which its model ends.
        refusal: what every request meets while it is set, such as a revoked key.
        latency: seconds of an answer.
        requests: the bodies of all requests; with their headers, queries and times.
        busiest: most requests at once.
    """

    answer: Callable[[dict[str, Any]], str] = shy_answer
    script: Iterable[Step] = ()
    meets: Callable[[dict[str, Any]], Step | None] = lambda body: None
    refuses: tuple[str, ...] = ()
    shutdown: str | None = None
    refusal: Step | None = None
    model: str = "gpt-4.1-2025-04-14"
    key: str | None = None
    latency: float = 0.0
    down: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    busiest: int = 0

    def __post_init__(self) -> None:
        self.script = deque(self.script)
        self._now = 0
        self._seen: set[int] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/chat/completions", self._completions)
        app.router.add_post("/{proxied:.*}/v1/chat/completions", self._completions)
        app.router.add_get("/v1/models", self._models)

    async def _models(self, request: web.Request) -> web.Response:
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return _error(401, "Incorrect API key provided.", "invalid_api_key")
        return web.json_response(
            {"object": "list", "data": [{"id": self.model, "object": "model", "shutdown_date": self.shutdown}]}
        )

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        self._now += 1
        self.busiest = max(self.busiest, self._now)
        try:
            return await self._serve(request)
        finally:
            self._now -= 1

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.down:
            return self._reset(request)
        self.queries.append(request.query_string)
        self.headers.append(dict(request.headers))
        self.times.append(time.monotonic())
        try:
            body = json.loads(await request.read())
        except ValueError:
            return _error(400, "We could not parse the JSON body of your request.", code=None)
        if wrong := self._refusal(request, body):
            return wrong
        self.requests.append(body)
        step = self.refusal or self.step(body)
        await asyncio.sleep(step.seconds)
        return await self._act(request, body, step)

    def step(self, body: dict[str, Any]) -> Step:
        """What this request meets."""
        assert isinstance(self.script, deque)
        return self.meets(body) or (self.script.popleft() if self.script else Step(seconds=self.latency))

    def _refusal(self, request: web.Request, body: Any) -> web.Response | None:
        bearer = request.headers.get("Authorization", "")
        if self.key is not None and bearer != f"Bearer {self.key}":
            # Some gateways repeat what they were given.
            return _error(401, f"Incorrect API key provided: {bearer.removeprefix('Bearer ')}.", "invalid_api_key")
        messages = body.get("messages") if isinstance(body, dict) else None
        if not isinstance(messages, list) or not messages:
            return _error(400, "Invalid type for 'messages': expected an array of objects.", "invalid_type", "messages")
        for index, each in enumerate(messages):
            if each.get("role") not in ("system", "user", "assistant") or not isinstance(each.get("content"), str):
                return _error(400, f"Invalid value for 'messages[{index}]'.", "invalid_value", f"messages[{index}]")
        if body.get("model") != self.model:
            return _error(404, f"The model `{body.get('model')}` does not exist.", "model_not_found")
        for name in self.refuses:
            if name in body and not (name == "temperature" and body[name] == 1):
                code = "unsupported_value" if name == "temperature" else "unsupported_parameter"
                return _error(400, REFUSALS[name].format(value=body[name]), code, name)
        return None

    async def _act(self, request: web.Request, body: dict[str, Any], step: Step) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        match step.kind:
            case "answer":
                text = self.answer(body) if step.text is None else step.text.replace("{authorization}", authorization)
                answer = self._completion(body, text, step.finish_reason)
                if step.usage is not True:
                    answer["usage"] = step.usage
                if step.usage is None:
                    del answer["usage"]
                return web.json_response(answer)
            case "status":
                error = _error(step.status, step.message.format(authorization=authorization), step.code, step.param)
                if step.body is not None:
                    error = web.Response(status=step.status, text=step.body.replace("{authorization}", authorization))
                asked = {} if step.retry_after is None else {"Retry-After": str(step.retry_after)}
                error.headers.update(asked | step.headers)
                return error
            case "cut":
                return self._reset(request)
            case "cut_midway":
                whole = json.dumps(self._completion(body, "[message] cut", "stop")).encode()
                response = web.StreamResponse(headers={"Content-Length": str(len(whole))})
                await response.prepare(request)
                await response.write(whole[: len(whole) // 2])
                return self._reset(request)
            case "junk":
                return web.Response(body=b'{"id": "chatcmpl-1", "choices": [{"mess', content_type="application/json")
            case "huge":
                return web.json_response(self._completion(body, "[message] " + "x" * step.size, "stop"))
            case "gzip" | "deflate" as coding:
                whole = json.dumps(self._completion(body, "[message] " + "x" * step.size, "stop")).encode()
                packed = await asyncio.to_thread({"gzip": gzip, "deflate": zlib}[coding].compress, whole, 1)
                return web.Response(body=packed, content_type="application/json", headers={"Content-Encoding": coding})
            case "deep":
                return web.Response(body=b'{"choices":' + b"[" * 200_000, content_type="application/json")
            case "endless":
                response = web.StreamResponse(headers={"Content-Type": "application/json"})
                await response.prepare(request)
                while True:
                    await response.write(b" " * 65536)
            case "hang":
                await asyncio.sleep(3600)
        raise ValueError(step.kind)

    def _reset(self, request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def _completion(self, body: dict[str, Any], text: str, finish_reason: str) -> dict[str, Any]:
        read, cached = self._prompt_tokens(body["messages"])
        written = len(text) // 4 + 1
        message, counts = {"role": "assistant", "content": text}, {"prompt_tokens": read, "completion_tokens": written}
        return {
            "id": f"chatcmpl-{len(self._seen)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
            "usage": counts | {"total_tokens": read + written, "prompt_tokens_details": {"cached_tokens": cached}},
        }

    def _prompt_tokens(self, messages: list[dict[str, str]]) -> tuple[int, int]:
        """(prompt tokens, those in the longest beginning seen before): four characters a token, cached by 128 from 1,024 on."""
        total = cached = 0
        prefix: tuple[str, ...] = ()
        for message in messages:
            prefix = (*prefix, message["role"], message["content"])
            total += len(message["content"]) // 4 + 4
            if hash(prefix) in self._seen:
                cached = total
            self._seen.add(hash(prefix))
        return total, cached // 128 * 128 if cached >= 1024 else 0


def _error(status: int, message: str, code: str | None = None, param: str | None = None) -> web.Response:
    kind = "invalid_request_error" if status < 429 else "server_error"
    return web.json_response({"error": {"message": message, "type": kind, "param": param, "code": code}}, status=status)
