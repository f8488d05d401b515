"""No secret gets out: a run that fails in every way, in a separate process, and all that it wrote."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.openai_server import OpenAIServer, Step
from tests.partners.openai_setup import text_of

KEY = "sk-distinctive-5f1e0c77"
BASIC = base64.b64encode(b"me:hush-8842aa").decode()

RUN = """
import asyncio, logging, sys, traceback
logging.basicConfig(level=logging.DEBUG)
from slim_rl.config import PartnerConfig
from slim_rl.dialogue.record import Dialogue
from slim_rl.games.matching.partners.chat import MatchingChatPartner as OpenAIPartner
from tests.partners.openai_setup import QUESTION, partner_config, view_after

async def main(url, folder):
    for name, headers in (("plain", {}), ("headers", {"Authorization": "Basic %(basic)s"})):
        config = partner_config(
            url, headers=headers, max_retries=1, request_seconds=0.3, cassette=f"{folder}/{name}.sqlite"
        )
        partner = OpenAIPartner(config.openai)
        print(partner.identity)
        for seed in range(9):
            try:
                print(await partner.act(view_after(QUESTION, seed=seed)))
            except Exception as failure:
                traceback.print_exc()
                print(repr(failure), vars(failure))
        print(partner.stopped, partner.usage, partner.endpoint.spend, open("/proc/self/cmdline").read())
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
                "OPENAI_API_KEY": KEY,
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
    assert f"Bearer {KEY}" in sent and any(value.startswith("Basic ") for value in sent), "it was really used"
    everything = {path.name: text_of(path) for path in sorted(out.rglob("*")) if path.is_file()}
    assert {"plain.sqlite", "stdout", "stderr"} <= set(everything)
    assert "***" in everything["stdout"], "the server's echo was redacted"
    for name, text in everything.items():
        assert KEY not in text, name
        assert BASIC not in text, name
