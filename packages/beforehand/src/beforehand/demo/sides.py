"""The two sides of the demo: the commands that start their workers, and their final reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from beforehand.demo.contest import Reported
from beforehand.demo.scenario import LANES, REQUESTS, SERVICES, Service, Spot
from beforehand.inspect.reader import JournalReader
from beforehand.journal.backends import open_journal
from beforehand.model.operation import OperationState
from beforehand.model.run_history import RunHistory


class WithoutBeforehand:
    """The desk with retries and a checkpoint; its report is read from its checkpoints."""

    name = "without"

    def __init__(self, requests: Path, folder: Path) -> None:
        self._requests = requests
        self._folder = folder / self.name

    def command(self, lane: int) -> Sequence[str]:
        options = ("--requests", str(self._requests), "--checkpoint", str(self._checkpoint(lane)))
        return ("beforehand.demo.without", *options, "--lane", str(lane))

    async def report(self) -> Mapping[Spot, Reported]:
        steps: dict[str, str] = {}
        for lane in range(LANES):
            steps |= json.loads(self._checkpoint(lane).read_text())
        spots: list[Spot] = [(service, request) for service in SERVICES for request in range(1, REQUESTS + 1)]
        ends = {spot: steps.get(f"{spot[1]}/{spot[0]}") for spot in spots}
        return {spot: "done" if end == "done" else "failed" for spot, end in ends.items() if end}

    def _checkpoint(self, lane: int) -> Path:
        return self._folder / f"lane-{lane}.json"


# --- with Beforehand: the report is read from its journal ------------------------------------------------------------


STEPS: Final[dict[Service, str]] = {
    "payments": "refund#1",
    "mail": "send_email#1",
    "tracker": "open_ticket#1",
    "warehouse": "restock#1",
}
_SERVICES: Final[dict[str, Service]] = dict(zip(STEPS.values(), STEPS, strict=True))


class WithBeforehand:
    """The desk on Beforehand; its report is read from its journal."""

    name = "beforehand"

    def __init__(self, requests: Path, folder: Path) -> None:
        self._requests = requests
        self.journal = folder / "beforehand.db"
        self.waiting: list[str] = []

    def command(self, lane: int) -> Sequence[str]:
        options = ("--requests", str(self._requests), "--journal", str(self.journal))
        return ("beforehand.demo.worker", *options, "--lane", str(lane))

    async def report(self) -> Mapping[Spot, Reported]:
        journal = open_journal(self.journal)
        identity = await journal.open()
        try:
            return await self.read(JournalReader(journal, identity))
        finally:
            await journal.close()

    async def read(self, reader: JournalReader) -> Mapping[Spot, Reported]:
        """The report of an open journal; `waiting` then names the operations that ask a person."""
        self.waiting = []
        report: dict[Spot, Reported] = {}
        for request in range(1, REQUESTS + 1):
            history = await _history(reader, f"request-{request}")
            self.waiting += [f"{history.run}/{operation.step}" for operation in _asking(history)]
            for service, step in STEPS.items():
                if (reported := _report_on(history, step)) is not None:
                    report[service, request] = reported
        return report


def place_of(operation: str) -> Spot:
    """The service and the request that an operation, such as `request-7/restock#1`, is about."""
    run, _, step = operation.partition("/")
    return _SERVICES[step], int(run.removeprefix("request-"))


async def _history(reader: JournalReader, run: str) -> RunHistory:
    history = RunHistory(run)
    async for _, record in reader.records(run):
        history.add(record)
    return history


def _report_on(history: RunHistory, step: str) -> Reported | None:
    """The journal's report on one effect. Effects that wait behind a question to a person wait for that person too."""
    operation = history.operations.get(step)
    match operation.status if operation else "pending":
        case "succeeded":
            return "done"
        case "failed" | "cancelled":
            return "failed"
        case _:
            return "waiting" if _asking(history) else None


def _asking(history: RunHistory) -> list[OperationState]:
    return [one for one in history.open_operations() if one.approval.person_asked or one.status == "unknown"]
