"""The options `--trace`, `--metrics` and `--log-json` of a worker."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from beforehand.cli.common import CommandCall

if TYPE_CHECKING:
    from beforehand.cli.apps import Beforehand
    from beforehand.telemetry.following import Follower


def write_logs_as_json() -> None:
    """Write the log of this process to standard error as lines of JSON, instead of what the loaded code has set up."""
    from beforehand.telemetry import JsonFormatter  # noqa: PLC0415 - most commands log nothing

    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class WorkerTelemetry(NamedTuple):
    """The followers of a worker, and the address on which it serves metrics."""

    followers: tuple[Follower, ...]
    address: tuple[str, int] | None = None
    untraced: bool = False

    @classmethod
    def wanted(cls, *, trace: bool, metrics: str | None) -> WorkerTelemetry:
        """The telemetry that these options ask for. Raises `UsageError` for an invalid address or a missing extra."""
        if not trace and metrics is None:
            return cls(())
        from beforehand import telemetry  # noqa: PLC0415 - needs an extra

        followers: tuple[Follower, ...] = ()
        untraced = False
        if trace:
            from beforehand.telemetry.opentelemetry import has_sdk  # noqa: PLC0415 - as above

            followers, untraced = (telemetry.OpenTelemetry(),), not has_sdk()
        if metrics is None:
            return cls(followers, untraced=untraced)
        from beforehand.telemetry.metrics_server import host_and_port  # noqa: PLC0415 - as above

        return cls((*followers, telemetry.Prometheus()), host_and_port(metrics), untraced)

    @asynccontextmanager
    async def serving(self, call: CommandCall, app: Beforehand) -> AsyncGenerator[None]:
        """Serve the metrics of the app inside the block, if wanted, and warn if no span would be exported."""
        if self.untraced:
            call.screen.note(
                ("No OpenTelemetry SDK is configured, so no span is exported.", "yellow"),
                " Next: opentelemetry-instrument beforehand worker ..., or configure it where the agents are defined",
            )
        if self.address is None:
            yield
            return
        from beforehand.telemetry.metrics_server import serving_metrics  # noqa: PLC0415 - as above
        from beforehand.telemetry.prometheus import Prometheus  # noqa: PLC0415 - as above

        measured = next(one for one in self.followers if isinstance(one, Prometheus))
        async with serving_metrics(self.address, lambda: measured.scrape(app.engine)) as port:
            host = f"[{self.address[0]}]" if ":" in self.address[0] else self.address[0]
            call.screen.note((f"Metrics: http://{host}:{port}/metrics", "dim"))
            yield
