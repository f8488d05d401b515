"""A page in Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0",
)  # fmt: skip


class Page:
    """Attributes: `problems`: what the page's script threw or its content policy refused."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.problems: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json(timeout=60)
            if message.get("method") == "Runtime.exceptionThrown":
                self.problems.append(str(message["params"]["exceptionDetails"]))
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.problems.append(message["params"]["entry"]["text"])
            if message.get("id") == number:
                assert "error" not in message, message
                return message.get("result", {})

    async def open(self, address: str) -> None:
        await self.call("Page.navigate", url="about:blank")
        await self.call("Page.navigate", url=address)
        for _ in range(200):
            if await self.run(f"document.readyState === 'complete' && location.href.startsWith({address[:60]!r})"):
                await self.run(
                    "typeof ready === 'undefined' || ready.then(() => true)"
                )  # the viewer has unpacked its data
                return
            await asyncio.sleep(0.05)
        raise TimeoutError(address)

    async def run(self, code: str) -> Any:
        """The value of an expression."""
        got = await self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    async def text(self, selector: str) -> str:
        return str(await self.run(f"document.querySelector({selector!r}).innerText"))

    async def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, **text)

    async def choose(self, field: str, value: str) -> None:
        """Types a value into a field, or picks it in a list, as a person would."""
        await self.run(
            f"(() => {{ const field = document.getElementById({field!r}); field.value = {value!r}; "
            "for (const name of ['input', 'change']) field.dispatchEvent(new Event(name, {bubbles: true})); })()"
        )

    async def resize(self, width: int, height: int, dark: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])


@contextmanager
def chromium() -> Iterator[str]:
    """A browser without a page: the address of its DevTools."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield f"127.0.0.1:{_port(Path(profile) / 'DevToolsActivePort')}"
        finally:
            browser.terminate()
            browser.wait()


@asynccontextmanager
async def browse(address: str) -> AsyncIterator[Page]:
    """A page of the browser at `address`, in a profile of its own: it shares nothing with other pages."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/json/version") as answer:
            itself = (await answer.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(itself) as socket:
            browser = Page(socket)
            profile = await browser.call("Target.createBrowserContext")
            target = await browser.call("Target.createTarget", url="about:blank", **profile)
            async with session.ws_connect(
                f"http://{address}/devtools/page/{target['targetId']}", max_msg_size=0
            ) as own:
                page = Page(own)
                for domain in ("Page", "Runtime", "Log"):
                    await page.call(f"{domain}.enable")
                yield page
            await browser.call("Target.disposeBrowserContext", **profile)


def _port(path: Path) -> int:
    for _ in range(300):
        if path.exists() and (lines := path.read_text().split()):
            return int(lines[0])
        time.sleep(0.1)
    raise TimeoutError("Chromium did not start.")
