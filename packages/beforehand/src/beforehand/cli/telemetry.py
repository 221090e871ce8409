"""The options `--trace`, `--metrics`, `--health` and `--log-json` of a worker."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from beforehand.cli.common import CommandCall

if TYPE_CHECKING:
    from beforehand.cli.apps import Beforehand
    from beforehand.telemetry.following import Follower
    from beforehand.telemetry.metrics_server import Page


def write_logs_as_json() -> None:
    """Write the log of this process to standard error as lines of JSON, instead of what the loaded code has set up."""
    from beforehand.telemetry import JsonFormatter  # noqa: PLC0415 - most commands log nothing

    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class WorkerTelemetry(NamedTuple):
    """The followers of a worker, and what it serves where: its metrics, its health."""

    followers: tuple[Follower, ...]
    served: tuple[tuple[str, tuple[str, int]], ...] = ()
    untraced: bool = False

    @classmethod
    def wanted(cls, *, trace: bool, metrics: str | None, health: str | None) -> WorkerTelemetry:
        """The telemetry that these options ask for. Raises `UsageError` for an invalid address or a missing extra."""
        if not trace and metrics is None and health is None:
            return cls(())
        from beforehand import telemetry  # noqa: PLC0415 - each follower needs an extra
        from beforehand.telemetry.metrics_server import host_and_port  # noqa: PLC0415 - most workers serve nothing

        followers: tuple[Follower, ...] = () if metrics is None else (telemetry.Prometheus(),)
        served = tuple((what, host_and_port(at)) for what, at in (("Metrics", metrics), ("Health", health)) if at)
        if not trace:
            return cls(followers, served)
        from beforehand.telemetry.opentelemetry import has_sdk  # noqa: PLC0415 - as above

        return cls((telemetry.OpenTelemetry(), *followers), served, untraced=not has_sdk())

    @asynccontextmanager
    async def serving(self, call: CommandCall, app: Beforehand) -> AsyncGenerator[None]:
        """Serve the wanted pages of the app inside the block, and warn if no span would be exported."""
        if self.untraced:
            call.screen.note(
                ("No OpenTelemetry SDK is configured, so no span is exported.", "yellow"),
                " Next: opentelemetry-instrument beforehand worker ..., or configure it where the agents are defined",
            )
        async with AsyncExitStack() as servers:
            for what, where in self.served:
                from beforehand.telemetry.metrics_server import serving  # noqa: PLC0415 - most workers serve nothing

                pages = health_pages(app) if what == "Health" else self._metrics_page(app)
                port = await servers.enter_async_context(serving(where, pages))
                host = f"[{where[0]}]" if ":" in where[0] else where[0]
                call.screen.note((f"{what}: {' '.join(f'http://{host}:{port}{path}' for path in pages)}", "dim"))
            yield

    def _metrics_page(self, app: Beforehand) -> dict[str, Page]:
        from beforehand.telemetry.prometheus import Prometheus  # noqa: PLC0415 - needs an extra

        measured = next(one for one in self.followers if isinstance(one, Prometheus))

        async def metrics() -> tuple[str, bytes]:
            return "200 OK", await measured.scrape(app.engine)

        return {"/metrics": metrics}


def health_pages(app: Beforehand) -> dict[str, Page]:
    """`/healthz`: the event loop answers. `/readyz`: also, no house-keeping fails, and the worker is not ending."""
    engine = app.engine

    async def healthz() -> tuple[str, bytes]:
        return "200 OK", b"ok\n"

    async def readyz() -> tuple[str, bytes]:
        causes = ["the worker is ending"] if engine.isolation.closed else engine.housekeeping.failing()
        return ("503 Service Unavailable", "\n".join([*causes, ""]).encode()) if causes else ("200 OK", b"ready\n")

    return {"/healthz": healthz, "/readyz": readyz}
