"""Traces and metrics of the runs of an app, made of what its journal has recorded, and log lines that name their run.

`spans` turns records into spans, and `following` hands those of committed records to a follower: `opentelemetry`, or
`prometheus` with the server of its page. `conventions` alone knows the names that OpenTelemetry gives to things. The
engine imports none of them.
"""

from typing import TYPE_CHECKING

from beforehand.telemetry.logs import JsonFormatter, LogContext

if TYPE_CHECKING:
    from beforehand.telemetry.opentelemetry import OpenTelemetry
    from beforehand.telemetry.prometheus import Prometheus

__all__ = ["JsonFormatter", "LogContext", "OpenTelemetry", "Prometheus"]


def __getattr__(name: str) -> object:
    """Import a follower when it is used: each needs a library that is an extra."""
    if name == "OpenTelemetry":
        from beforehand.telemetry.opentelemetry import OpenTelemetry  # noqa: PLC0415 - see above

        return OpenTelemetry
    if name == "Prometheus":
        from beforehand.telemetry.prometheus import Prometheus  # noqa: PLC0415 - see above

        return Prometheus
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
