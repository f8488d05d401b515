"""`slim-rl watch`: a run while it goes on, in a browser or in the terminal, from its dialogue log alone.

The page is served on this machine's loopback address and to its names alone; nothing else is served, and nothing is computed while
nobody looks.
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
from slim_rl.commands.options import Games, name_games
from slim_rl.errors import DataError, SlimError

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost", "[::1]")  # by which a browser may ask: any other is a page elsewhere that would read along
_PORT = re.compile(r":\d*$")  # which a browser leaves out where it is 80


def command(
    run: Annotated[
        Path,
        typer.Argument(help="the run's folder, or that of its dialogue log; it need not exist yet", show_default=False),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="port of the page on this machine; 0: any free one")
    ] = 8412,
    every: Annotated[float, typer.Option(min=1, help="seconds between two reads of the log")] = 10,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="dialogues to read: the last ones")] = 100,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="show it in the terminal; once, if the output is not a terminal")
    ] = False,
    game: Games = None,
) -> None:
    """Follow a run: curves, last dialogues, failures and costs, on a local page or in the terminal."""
    name_games(game)
    live = LiveRun(run, shown=num)
    if terminal:
        from slim_rl.commands.watch_screen import follow

        follow(live, every)
        return
    live.look()  # here, where what is wrong with the run's configuration can be said
    with serving(live, port, every) as server:
        address = f"http://{HOST}:{server.server_port}"
        typer.echo(f"{run}: {address} (Ctrl-C ends it)")
        typer.echo(
            f"From another machine: ssh -L {server.server_port}:{HOST}:{server.server_port} THIS-MACHINE, then the same address there."
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("")


def serving(live: LiveRun, port: int, every: float) -> ThreadingHTTPServer:
    """A server of the run's page alone, to be run or closed by the caller. Raises SlimError if the port is taken."""
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
            f"Port {port} cannot be used ({error.strerror}); name another one: --port 0 takes any that is free."
        ) from error


class _Pages:
    """The page, made anew when it is asked for, the log has grown, and the last look is `every` seconds ago."""

    def __init__(self, live: LiveRun, every: float) -> None:
        self.live, self.every = live, every
        self._lock = threading.Lock()  # a look at a time
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
