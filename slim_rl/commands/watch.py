"""`slim-rl watch`: a running run in a browser or in the terminal, from its dialogue log alone.

The server listens on the loopback address, answers requests for that host only, and serves one page. It computes nothing between
requests.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from slim_rl.analysis.live import LiveRun
from slim_rl.commands.options import Games, import_games
from slim_rl.errors import DataError, SlimError

HOST = "127.0.0.1"
_NAMES = (
    HOST,
    "localhost",
    "[::1]",
)  # accepted hosts: a request for any other comes from a foreign page (DNS rebinding)
_PORT = re.compile(r":\d*$")  # a browser omits port 80


def command(
    run: Annotated[
        Path,
        typer.Argument(help="folder of the run, or of its dialogue log; it need not exist yet", show_default=False),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="port of the page; 0: any free one")] = 8412,
    every: Annotated[float, typer.Option(min=1, help="seconds between reads of the log")] = 10,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="number of last dialogues to show")] = 100,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="show the run in the terminal; once, if the output is not a terminal")
    ] = False,
    game: Games = None,
) -> None:
    """Follow a run: curves, last dialogues, failures and costs, on a local page or in the terminal."""
    import_games(game)
    live = LiveRun(run, shown=num)
    if terminal:
        from slim_rl.commands.watch_screen import follow

        follow(live, every)
        return
    live.look()  # raises if the run's configuration is invalid
    with serving(live, port, every) as server:
        address = f"http://{HOST}:{server.server_port}"
        typer.echo(f"{run}: {address} (Ctrl-C ends it)")
        typer.echo(
            f"From another machine: ssh -L {server.server_port}:{HOST}:{server.server_port} THIS-MACHINE, then open the same address."
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("")


def serving(live: LiveRun, port: int, every: float) -> ThreadingHTTPServer:
    """Returns a server of the run's page; the caller runs and closes it. Raises SlimError if the port is taken."""
    pages = _Pages(live, every)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if _PORT.sub("", self.headers.get("Host", "")) not in _NAMES:
                self._answer(403, b"This page is for this machine.")
            elif self.path.partition("?")[0] != "/":
                self._answer(404, b"There is one page, at /.")
            else:
                version, page = pages.newest()
                same = self.headers.get("If-None-Match") == f'"{version}"'
                self._answer(304 if same else 200, b"" if same else page, version)

        def _answer(self, status: int, content: bytes, version: int | None = None) -> None:
            self.send_response(status)
            if version is not None:
                self.send_header("ETag", f'"{version}"')
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-cache")
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the browser has gone
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            return

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise SlimError(
            f"--port {port} cannot be used ({error.strerror}). Choose another port, or --port 0 for any free one."
        ) from error


class _Pages:
    """Cache of the page. A request renews it if the log has grown, at most once per `every` seconds."""

    def __init__(self, live: LiveRun, every: float) -> None:
        self.live, self.every = live, every
        self._lock = threading.Lock()  # one read at a time
        self._looked, self._page = -every, b""

    def newest(self) -> tuple[int, bytes]:
        with self._lock:
            if time.monotonic() - self._looked >= self.every:
                try:
                    if self.live.look() or not self._page:
                        self._page = self.live.page(self.every).encode()
                except (DataError, OSError):  # a file of the log went away while it was read
                    self.live.forget()
                    self._page = self.live.page(self.every).encode()
                self._looked = time.monotonic()
            return self.live.version, self._page
