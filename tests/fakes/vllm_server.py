"""vLLM's OpenAI-compatible completions over token ids on loopback, as far as an evaluation meets them.

What a real server does and a client can trip over is done here too: ids come back only if `return_token_ids` asks for them and the
server is not too old to know it, one logprob a token only if `logprobs` is given, a prompt that leaves no room is answered
with 400, and so is another model's name.

In a separate process, with vLLM's own flags: ``python -m tests.fakes.vllm_server --model DIR --host 127.0.0.1 --port 8000``.
"""

import argparse
import asyncio
import os
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.fakes.sglang_server import SGLangServer


@dataclass
class VLLMServer(SGLangServer):
    """See `SGLangServer` and the module's docstring. `knows_ids`: whether it is new enough for return_token_ids."""

    model: str = "tiny"
    knows_ids: bool = True

    def routes(self, app: web.Application) -> None:
        super().routes(app)
        app.router.add_post("/v1/completions", self._completions)

    async def _completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._received += 1
        self.requests.append({**body, "key": request.headers.get("X-SMG-Routing-Key")})
        ids, most = body["prompt"], body.get("max_tokens", 16)
        if not all(isinstance(token, int) for token in ids):
            return _error(400, "this server is asked for token ids only")
        if body.get("model") != self.model:
            return _error(404, f"The model `{body.get('model')}` does not exist.")
        if len(ids) + most > self.context_length:
            return _error(400, f"This model's maximum context length is {self.context_length} tokens.")
        rng, lot = self._draw(ids)
        if lot < self.faults.error:
            return _error(500, "EngineCore encountered an issue.")
        await self._take_time(self.delay(rng) if callable(self.delay) else self.delay)
        said, finish = self.speak(ids, rng), "stop"
        if len(said) > most:
            said, finish = said[:most], "length"
        choice: dict[str, Any] = {"index": 0, "text": "".join(f"<{token}>" for token in said), "finish_reason": finish}
        logprobs = [-rng.random() * 3 for _ in said]
        choice["logprobs"] = None if body.get("logprobs") is None else {"token_logprobs": logprobs}
        if self.knows_ids:
            choice["token_ids"] = said if body.get("return_token_ids") else None
        return web.json_response({"id": "cmpl", "object": "text_completion", "model": self.model, "choices": [choice]})


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--port", type=int)
    given, _ = parser.parse_known_args()
    print(f"serving {given.model} in process {os.getpid()}", flush=True)
    from slim_rl.dialogue.chat import Chat
    from slim_rl.policies import load_tokenizer

    chat = Chat(load_tokenizer(given.model))
    server, loop = (
        VLLMServer(lambda ids, rng: chat.said_ids("[message] Hello."), model=given.model),
        asyncio.new_event_loop(),
    )
    loop.run_until_complete(server.start(given.port))
    loop.run_forever()


if __name__ == "__main__":
    main()
