"""The side without Holdfast: the commands that start its workers, and its final report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.demo.referee import Reported
from holdfast.demo.schedule import LANES, REQUESTS, SERVICES, Service, Spot


class WithoutHoldfast:
    """The desk with retries and a checkpoint; its report is read from its checkpoints."""

    name = "without"

    def __init__(self, requests: Path, folder: Path) -> None:
        self._requests = requests
        self._folder = folder / self.name

    def command(self, lane: int) -> Sequence[str]:
        options = ("--requests", str(self._requests), "--checkpoint", str(self._checkpoint(lane)))
        return ("holdfast.demo.without", *options, "--lane", str(lane))

    async def report(self) -> Mapping[Spot, Reported]:
        steps: dict[str, str] = {}
        for lane in range(LANES):
            steps |= json.loads(self._checkpoint(lane).read_text())
        spots: list[Spot] = [(service, request) for service in SERVICES for request in range(1, REQUESTS + 1)]
        return {spot: _reported(status) for spot in spots if (status := steps.get(_place(*spot)))}

    def _checkpoint(self, lane: int) -> Path:
        return self._folder / f"lane-{lane}.json"


def _place(service: Service, request: int) -> str:
    return f"{request}/{service}"


def _reported(status: str) -> Reported:
    return "done" if status == "done" else "failed"
