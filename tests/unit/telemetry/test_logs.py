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


def written(
    message: str, *args: object, name: str = "shop", exc_info: Any = None, extra: dict[str, object] | None = None
) -> dict[str, Any]:
    lines = Lines()
    log = logging.getLogger(name)
    lines.handle(log.makeRecord(name, logging.WARNING, "f", 1, message, args, exc_info, extra=extra))
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


def test_what_other_handlers_and_newer_pythons_note_on_a_record_is_no_field_of_its_line():
    record = logging.LogRecord("shop", logging.WARNING, "f", 1, "m %s", ("x",), None)
    record.taskName = None
    logging.Formatter("%(asctime)s %(message)s").format(record)
    LogContext().filter(record)
    record.order = "A-17"
    line = json.loads(JsonFormatter().format(record))
    assert set(line) == {"time", "level", "logger", "message", "order"}
    assert line["message"] == "m x"


def test_an_error_is_told_whether_it_was_raised_or_not():
    """Outside of an exception, `exc_info=True` names none."""
    made = ValueError("never raised")
    record = logging.LogRecord("shop", logging.ERROR, "f", 1, "m", (), (ValueError, made, None))
    line = json.loads(JsonFormatter().format(record))
    assert (line["error"]["type"], line["error"]["message"]) == ("ValueError", "never raised")
    record.exc_info, record.exc_text = (None, None, None), None
    assert "error" not in json.loads(JsonFormatter().format(record))


def test_the_run_of_a_message_of_the_runtime_is_found_behind_other_values():
    assert written("%s and %s: run %s waits for %s", "a", "b", "r-ann", "c", name="beforehand")["run"] == "r-ann"
    assert written("run %s, then run %s", "r-ann", "r-bob", name="beforehand")["run"] == "r-ann"


class Mute(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_no_line_is_lost_for_a_value_or_an_error_that_cannot_be_shown():
    unseen = "<Mute without a text: RuntimeError>"
    line = written("failed", exc_info=(Mute, Mute(), None), extra={"cause": Mute(), "causes": {"first": [Mute()]}})
    assert (line["message"], line["error"]["type"], line["error"]["message"]) == ("failed", "Mute", unseen)
    assert (line["cause"], line["causes"]) == (unseen, {"first": [unseen]})
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    line = written("m", extra={"deep": deep, "beside": 1})
    assert (line["message"], line["deep"], line["beside"]) == ("'m'", "<list without a text: RecursionError>", "1")
