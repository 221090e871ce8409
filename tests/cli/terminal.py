"""A command as a person has it: a real process on a real terminal of 80 columns, driven by keys."""

import os
import pty
import select
import struct
import termios
from fcntl import ioctl
from typing import Self

from tests import forked
from tests.cli.lab import Lab

COLUMNS, ROWS = 80, 24


class Terminal:
    """A process on a pseudo-terminal, and everything that it drew."""

    def __init__(self, lab: Lab, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, **lab.environment, "TERM": "xterm"}
        self.process = forked.start(
            ["-m", "beforehand", *arguments], cwd=lab.directory, env=environment,
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.drawn = ""

    def see(self, text: str) -> str:
        """Read on until `text` was drawn; what was drawn since the last look."""
        drawn = ""
        while text not in drawn:
            ready, _, _ = select.select([self.master], [], [], 30)
            assert ready, f"{text!r} was never drawn; there is: {drawn!r}"
            drawn += os.read(self.master, 65_536).decode("utf-8", "replace")
        self.drawn += drawn
        return drawn

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> int:
        return self.process.wait(timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.master)
        self.process.kill()
        self.process.wait(timeout=30)
