"""Log lines that name their run and operation: a filter for any logging setup, and a formatter that writes JSON."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from beforehand.engine.active_run.scopes import SCOPE
from beforehand.engine.current_operation import AT
from beforehand.model.ids import operation_id

_NAMED: Final = "run %s"
"""How the runtime's own messages name a run, whose code may not be what runs at that moment."""
_ATTRIBUTES: Final = {"run": "", "operation": "", "tool": "", "attempt": 0}
_PREFIX: Final = "beforehand_"
_ADDED: Final = {"message", "asctime", "taskName", *(_PREFIX + name for name in _ATTRIBUTES)}
_STANDARD: Final = {*logging.makeLogRecord({}).__dict__, *_ADDED}


class LogContext(logging.Filter):
    """Adds to each log record the run and the operation in which it was written.

    The attributes are `beforehand_run`, `beforehand_operation` (its full name), `beforehand_tool` and
    `beforehand_attempt`; they are empty, and the attempt 0, outside of a run and of a tool. Add it to a handler that is
    called where the line is written: with a `QueueHandler` to that one, not to the handlers of its listener.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes. No record is left out."""
        if not hasattr(record, f"{_PREFIX}run"):
            for name, value in {**_ATTRIBUTES, **_present(record)}.items():
                setattr(record, _PREFIX + name, value)
        return True


class JsonFormatter(logging.Formatter):
    """Writes each log record as one line of JSON, with the run and the operation in which it was written.

    Names are `time` (UTC), `level`, `logger`, `message`, then `run`, `operation`, `tool` and `attempt` where there are
    such, `error` with `type`, `message` and `stack`, and what the line gave as `extra=`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        LogContext().filter(record)
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name in _ATTRIBUTES if (value := getattr(record, _PREFIX + name))},
        }
        if record.exc_info and (error := record.exc_info[1]) is not None:
            stack = self.formatException(record.exc_info)
            fields["error"] = {"type": type(error).__name__, "message": _text(error), "stack": stack}
        fields = {name: value for name, value in record.__dict__.items() if name not in _STANDARD} | fields
        try:
            return msgspec.json.encode(fields, enc_hook=_text).decode()
        except (TypeError, ValueError, RecursionError):  # a value without a JSON form, or text that is no Unicode
            return msgspec.json.encode({name: _text(value, ascii) for name, value in fields.items()}).decode()


def _text(value: object, form: Callable[[object], str] = str) -> str:
    try:
        return form(value)
    except Exception as error:  # noqa: BLE001 - whatever a class of users raises, the line is written
        return f"<{type(value).__name__} without a text: {type(error).__name__}>"


def _present(record: logging.LogRecord) -> dict[str, object]:
    """The run and the operation of the code that writes this record, or that a message of the runtime names."""
    if (current := AT.get()) is not None:
        operation = operation_id(current.run, current.step)
        return {"run": current.run, "operation": operation, "tool": current.tool, "attempt": current.attempt}
    if (scope := SCOPE.get()) is not None:
        return {"run": scope.active.run}
    if record.name == "beforehand" and isinstance(record.args, tuple) and _NAMED in str(record.msg):
        return {"run": record.args[str(record.msg).partition(_NAMED)[0].count("%")]}
    return {}
