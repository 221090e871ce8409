"""What orders are given through: an engine over the journal. Commands that only look do not import it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.engine.engine import Engine
from holdfast.engine.seams import system_seams
from holdfast.engine.settings import Settings
from holdfast.engine.tooling import ToolCode
from holdfast.interfaces.service import Service
from holdfast.journal import host
from holdfast.journal.sqlite.journal import SqliteJournal


@asynccontextmanager
async def service_over(path: Path, tools: Mapping[str, ToolCode], *, private_webhooks: bool) -> AsyncGenerator[Service]:
    """Open the journal to give orders, in the name of whoever types them."""
    settings = Settings(private_webhooks=private_webhooks)
    engine = Engine(SqliteJournal(path), system_seams(), settings, tools, {}, host.this_process)
    try:
        await engine.open()
        yield Service(engine, via="typed")
    finally:
        await engine.close()
