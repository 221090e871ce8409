"""Log lines: each names the run and the operation in which it was written."""

import asyncio
import json
import logging
import logging.handlers
import queue
from typing import Any

from beforehand import Run, agent, tool
from beforehand.telemetry import JsonFormatter, LogContext
from tests.unit.engine.lab import Lab, virtual

LOG = logging.getLogger("shop")


class Lines(logging.Handler):
    """Keeps what a formatter makes of each record."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        assert "\n" not in text
        self.lines.append(json.loads(text))


def written(message: str, *args: object, name: str = "shop", **options: Any) -> dict[str, Any]:
    lines = Lines()
    lines.handle(logging.getLogger(name).makeRecord(name, logging.WARNING, "f", 1, message, args, None, **options))
    return lines.lines[0]


@virtual
async def test_lines_of_agent_code_and_tools_name_their_run_and_operation(lab: Lab):
    lines = Lines()
    LOG.addHandler(lines)
    LOG.setLevel(logging.INFO)

    @tool
    async def charge(name: str) -> str:
        LOG.info("charging %s", name)
        return name

    @tool
    def refund(name: str) -> str:
        LOG.info("refunding")  # in a thread
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        LOG.info("begins")
        await asyncio.create_task(charge(name))
        await refund(name)
        return name

    async with lab.app(desk, tools=[charge, refund]) as app:
        await asyncio.gather(app.run(desk, "ann"), app.run(desk, "bob"))
        LOG.info("outside")
    LOG.removeHandler(lines)
    found = [
        (one["message"], one.get("run"), one.get("operation"), one.get("tool"), one.get("attempt"))
        for one in lines.lines
    ]
    for name in ("ann", "bob"):
        assert found.count(("begins", f"r-{name}", None, None, None)) == 1
        assert (f"charging {name}", f"r-{name}", f"r-{name}/~1/charge#1", "charge", 1) in found
        assert ("refunding", f"r-{name}", f"r-{name}/refund#1", "refund", 1) in found
    assert found[-1] == ("outside", None, None, None, None)


def test_messages_of_the_runtime_name_the_run_that_they_are_about():
    text = "the lease of run %s could not be given back: %s"
    assert written(text, "r-ann", "gone", name="beforehand")["run"] == "r-ann"
    fired = "the schedule %s has fired with run %s, which existed"
    assert written(fired, "nightly", "nightly@2027-01-31T12:00:00Z", name="beforehand")["run"].startswith("nightly@")
    assert "run" not in written(text, "r-ann", "gone"), "code of users may mean other runs"
    assert "run" not in written("it closes", name="beforehand")
    assert "run" not in written("run %s ends", {"by": "ann"}, name="beforehand"), "its argument is a mapping"


def test_a_line_has_its_time_level_error_and_extra_fields():
    try:
        int("two\nlines")
    except ValueError as error:
        record = logging.LogRecord(
            "shop", logging.ERROR, "f", 1, "failed", (), (type(error), error, error.__traceback__)
        )
    record.order = "A-17"
    record.created = 0.25
    lines = Lines()
    lines.handle(record)
    (line,) = lines.lines
    assert line["time"] == "1970-01-01T00:00:00.250+00:00"
    assert (line["level"], line["logger"], line["order"]) == ("ERROR", "shop", "A-17")
    assert line["error"]["type"] == "ValueError"
    assert "test_logs.py" in line["error"]["stack"]


def test_values_without_a_json_form_are_written_as_text():
    circle: list[Any] = []
    circle.append(circle)
    assert written("half a \ud800 character")["message"] == "'half a \\ud800 character'"
    assert written("m", extra={"socket": object})["socket"] == "<class 'object'>"
    assert written("m", extra={"circle": circle})["circle"] == "[[...]]"


def test_an_extra_field_does_not_replace_what_a_line_says_of_itself():
    assert written("m", extra={"level": "?", "run": "?"}) | {"time": ""} == {
        "time": "", "level": "WARNING", "logger": "shop", "message": "m", "run": "?",
    }  # fmt: skip


def test_a_queue_between_keeps_the_run():
    """The listener formats in another thread, where no run is."""
    waiting: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(waiting)
    handler.addFilter(LogContext())
    record = logging.LogRecord("beforehand", logging.WARNING, "f", 1, "run %s waits", ("r-ann",), None)
    handler.handle(record)
    lines = Lines()
    lines.handle(waiting.get())
    assert lines.lines[0]["run"] == "r-ann"
