"""A model hub on loopback, as far as an upload touches one: it makes a repository, asks for every file inline, and keeps commits; and
one that cannot be reached.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any


@dataclass
class Hub:
    """Use as a context manager.

    Attributes:
        token: the one it takes.
        repositories: name -> file -> content, as committed.
        private: names of private repositories.
        asked: paths of the questions it was asked; it knows no model.
    """

    token: str = "hf_right"
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def __enter__(self) -> Hub:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_HEAD = do_GET

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = hub.answer(self.path, content, self.headers.get("Authorization", ""))
                body = json.dumps(answer).encode()
                self.send_response(status)
                if status == 409:
                    self.send_header("X-Error-Code", "RepoAlreadyExists")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, content: bytes, authorization: str) -> tuple[int, Any]:
        if path.endswith("/validate-yaml"):
            return 200, {"errors": [], "warnings": []}
        if authorization != f"Bearer {self.token}":
            return 401, {"error": "Invalid username or password."}
        if path == "/api/repos/create":
            return self._create(json.loads(content))
        name = "/".join(path.split("/")[3:5])
        if name not in self.repositories:
            return 404, {"error": "Repository not found"}
        if "/preupload/" in path:
            asked = json.loads(content)["files"]
            return 200, {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in asked]}
        for line in map(json.loads, content.splitlines()):
            if line["key"] == "file":
                self.repositories[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        address = f"{self.url}/{name}"
        return 200, {"commitUrl": f"{address}/commit/{'0' * 40}", "commitOid": "0" * 40, "success": True}

    def _create(self, body: dict[str, Any]) -> tuple[int, Any]:
        name = f"{body['organization']}/{body['name']}" if body.get("organization") else body["name"]
        if name in self.repositories:
            return 409, {"error": "You already created this model repo", "url": f"{self.url}/{name}"}
        self.repositories[name] = {}
        if body.get("private") or body.get("visibility") == "private":
            self.private.add(name)
        return 200, {"url": f"{self.url}/{name}", "name": name}


@contextmanager
def unreachable() -> Iterator[tuple[str, list[Any]]]:
    """An address that ends every connection without a word, and who has tried so far."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        tried: list[Any] = []

        def hang_up() -> None:
            with suppress(OSError):  # the server's end
                while True:
                    connection, caller = server.accept()
                    tried.append(caller)
                    connection.close()

        Thread(target=hang_up, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", tried
        server.shutdown(socket.SHUT_RDWR)
