"""How a worker reaches the witness: one connection, one line there, one line back, with crash points between."""

import asyncio
import json
import socket

from beforehand import current_operation


class Line:
    """The way to the witness for one case; a worker's tools share one."""

    port, case, points = 0, "", None

    def connect(self, port, case, points=None):
        self.port, self.case, self.points = port, case, points

    def at(self, point, kind):
        """Each place counts twice: for all requests, and for those of its kind."""
        if self.points is not None:
            self.points.reached(point)
            self.points.reached(f"{point}:{kind}")

    def request(self, kind, name, **fields):
        """What the witness is told: with it the operation, the attempt and the key, so that it can testify."""
        return json.dumps({"case": self.case, "kind": kind, "name": name, **fields}).encode() + b"\n"

    async def send(self, kind, name="", **fields):
        self.at("before_request", kind)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(self.request(kind, name, **fields))
            await writer.drain()
            self.at("after_request", kind)
            answer = await reader.readline()
        finally:
            writer.close()
        self.at("after_reply", kind)
        return _read(answer)

    def send_and_block(self, kind, name="", **fields):
        """The same from a thread."""
        self.at("before_request", kind)
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(self.request(kind, name, **fields))
            self.at("after_request", kind)
            with connection.makefile("rb") as lines:
                answer = lines.readline()
        self.at("after_reply", kind)
        return _read(answer)


def _read(answer):
    if not answer:
        raise ConnectionResetError("the witness hung up without an answer")
    return json.loads(answer)


def identity(*, key=False):
    """What the present operation is, for the witness. Reads the key only where the tool is one that uses it."""
    operation = current_operation()
    found = {"operation": operation.id, "attempt": operation.attempt}
    return {**found, "key": operation.key} if key else found
