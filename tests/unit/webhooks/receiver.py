"""A receiver of webhooks on loopback: real sockets, answers that a test chooses, and what came, by id."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Came = tuple[dict[str, str], bytes]
DIES = -1


class Receiver:
    """`answers` gives the status for each request in turn, the last one for ever; `DIES` hangs up after acting."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/hooks"
        self.came: list[Came] = []
        self.acted: set[str] = set()
        self.answers: list[int] = [204]
        self.headers: dict[str, str] = {}

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.came]

    def take(self, headers: dict[str, str], body: bytes) -> int:
        self.came.append((headers, body))
        self.acted.add(headers["webhook-id"])  # a receiver that keeps to the id acts once
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """One receiver, closed at the end."""
    receiver: Receiver

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take({name.lower(): value for name, value in self.headers.items()}, body)
            if status == DIES:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

        def finish(self) -> None:
            if not self.wfile.closed and self.connection.fileno() != -1:
                super().finish()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
