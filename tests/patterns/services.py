"""Real services on loopback: a mail server, and a till and a tracker behind HTTP, each counting what it did."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Generator
from email import message_from_bytes
from email.message import Message
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.smtp import SMTP

LOOPBACK = "127.0.0.1"


class Inbox:
    """The mails that an SMTP server took, for as long as it runs."""

    def __init__(self) -> None:
        self.mails: list[Message] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        self.mails.append(message_from_bytes(envelope.content))
        return "250 OK"

    @contextlib.contextmanager
    def serving(self) -> Generator[int]:
        loop = asyncio.new_event_loop()
        serving = threading.Thread(target=loop.run_forever)
        serving.start()
        listening = loop.create_server(lambda: SMTP(self, hostname="mail.example.com", loop=loop), LOOPBACK, 0)
        server = asyncio.run_coroutine_threadsafe(listening, loop).result()
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            loop.call_soon_threadsafe(server.close)
            asyncio.run_coroutine_threadsafe(server.wait_closed(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            serving.join()
            loop.close()


class Office:
    """A till that holds, captures, releases and refunds, and a tracker whose tickets are closed and labelled.

    The till stores every answer under its `Idempotency-Key`, refusals included.
    """

    def __init__(self) -> None:
        self.holds: dict[str, str] = {}
        self.tickets: dict[str, dict[str, Any]] = {}
        self.done: list[str] = []
        self.locked = False
        self._answers: dict[str, tuple[int, Any]] = {}
        self._lock = threading.Lock()

    def answer(self, path: str, body: dict[str, Any], key: str) -> tuple[int, Any]:
        with self._lock:
            if key and key in self._answers:
                return self._answers[key]
            answered = self._act(path.strip("/").split("/"), body)
            if key:
                self._answers[key] = answered
            return answered

    def _act(self, path: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        match path:
            case ["holds"]:
                name = f"h{len(self.holds) + 1}"
                self.holds[name] = "held"
            case ["holds", name, "capture"]:
                self.holds[name] = "captured"
            case ["holds", name, "release"] if self.holds[name] != "held":
                return 409, f"{name} is {self.holds[name]}"
            case ["holds", name, "release"]:
                self.holds[name] = "released"
            case ["holds", name, "refund"]:
                self.holds[name] = "refunded"
            case ["tickets"]:
                name = f"t{len(self.tickets) + 1}"
                self.tickets[name] = {"title": body["title"], "state": "open", "labels": [], "notes": []}
            case ["tickets", name, "close"] if self.locked:
                return 403, f"{name} is locked"
            case ["tickets", name, "close"]:
                self.tickets[name]["state"] = "closed"
                self.tickets[name]["notes"].append(body["note"])
            case ["tickets", name, "labels"]:
                self.tickets[name]["labels"].append(body["label"])
                self.tickets[name]["notes"].append(body["note"])
            case _:
                return 404, path
        self.done.append("/".join(path))
        return 200, name

    @contextlib.contextmanager
    def serving(self) -> Generator[int]:
        office = self

        class Door(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, said = office.answer(self.path, body, self.headers.get("Idempotency-Key", ""))
                text = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Nothing reads it."""

        server = ThreadingHTTPServer((LOOPBACK, 0), Door)
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            serving.join()
            server.server_close()


def post(port: int, path: str, body: dict[str, Any], key: str = "") -> tuple[int, Any]:
    """One request, and what was answered."""
    connection = HTTPConnection(LOOPBACK, port, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body), {"Idempotency-Key": key} if key else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
