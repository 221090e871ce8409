"""Programs in processes that are forked from a warm one, as the tests start and look at them."""

import functools
from pathlib import Path

from tests.crash.stage import Zygote


@functools.cache
def warm(python: str, *modules: str) -> Zygote:
    """A process with this interpreter that has imported these modules; it lives until the tests end."""
    return Zygote("tests.hosts.warm", python, BEFOREHAND_TEST_MODULES=" ".join(modules))


@functools.cache
def hosted(host: str, python: str) -> Zygote:
    """The same with a framework and what the cells run; it lives until the tests end."""
    return Zygote("tests.hosts.program", python, BEFOREHAND_TEST_HOST=host, PYTHONWARNINGS="ignore")


class Child:
    """One program in a process of its own: `Child(zygote, directory, "tests.hosts.mcp_program", "word")`."""

    def __init__(self, zygote: Zygote, directory: Path, *argv: object) -> None:
        self._zygote = zygote
        number = len([*directory.glob("log-*")]) + 1
        self._log = directory / f"log-{number}"
        self._log.touch()
        places = {"out": str(directory / f"out-{number}"), "log": str(self._log)}
        self.pid: int = zygote.ask(start={"argv": [str(word) for word in argv], **places})

    def ended(self, seconds: float = 120) -> tuple[int | None, str]:
        """The exit status, negative for a signal and None where it takes too long, and what was printed."""
        status = self._zygote.ask(wait=self.pid, seconds=seconds)
        return status, self._log.read_text(encoding="utf-8")


def succeeds(zygote: Zygote, directory: Path, *argv: object) -> None:
    """Check that the program ends well."""
    status, printed = Child(zygote, directory, *argv).ended()
    assert status == 0, printed
