"""The scenario of the demo: the customers' requests and the faults that they meet, a pure function of the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from typing import Final, Literal

import msgspec

REASONS = ("arrived broken", "too small", "wrong colour", "ordered twice", "came too late", "not as shown")


class CustomerRequest(msgspec.Struct, frozen=True):
    """A customer wants money back: a refund, a mail about it, a ticket, the goods back on the shelf."""

    id: int
    order_id: str
    email: str
    cents: int
    sku: str
    count: int
    reason: str


def make_requests(seed: int, how_many: int) -> list[CustomerRequest]:
    """The same customers for the same seed, numbered from 1."""
    dice = random.Random(f"requests/{seed}")
    return [
        CustomerRequest(
            id=number,
            order_id=f"order-{100 + number}",
            email=f"customer-{number}@example.com",
            cents=dice.randrange(500, 20_000, 5),
            sku=f"sku-{dice.randrange(10, 99)}",
            count=dice.randint(1, 3),
            reason=dice.choice(REASONS),
        )
        for number in range(1, how_many + 1)
    ]


def write_requests(path: Path, requests: list[CustomerRequest]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(request) + b"\n" for request in requests))


def read_requests(path: Path) -> list[CustomerRequest]:
    decoder = msgspec.json.Decoder(CustomerRequest)
    return decoder.decode_lines(path.read_bytes())


# --- the faults and their times --------------------------------------------------------------------------------------
#
# Nothing here depends on time or on the order in which requests arrive, so both sides meet the same
# faults and kill points, and a seed repeats. A fault belongs to the n-th call that a service gets for
# one customer's request. A kill point belongs to an *event*: the customers' effects are numbered in
# the order in which a worker comes to them, and the kill strikes at the first call of that event.


Service = Literal["payments", "mail", "tracker", "warehouse"]
SERVICES: Final[tuple[Service, ...]] = ("payments", "mail", "tracker", "warehouse")
Spot = tuple[Service, int]
"""A service and the number of a request: the place of one requested effect."""
Moment = Literal["arrival", "commit"]

REQUESTS: Final = 24
LANES: Final = 3
KILLS_PER_LANE: Final = 3


class ScheduledFault(StrEnum):
    """The behaviour of a service in one call."""

    NONE = "none"
    SLOW = "slow"  # answers, but takes its time
    SILENT = "silent"  # commits, then never answers
    LATE = "late"  # never answers, and commits after a while
    BROKEN = "broken"  # commits, then answers with a server error
    LOST = "lost"  # drops the connection, nothing happens
    OUTAGE = "outage"  # commits, never answers, and drops the next three calls
    REFUSED = "refused"  # a definite refusal of every call of this request


COMMITS_AT_ONCE: Final = frozenset(
    {ScheduledFault.NONE, ScheduledFault.SLOW, ScheduledFault.SILENT, ScheduledFault.BROKEN}
)

# How many of the 24 first calls have which fault; the rest are served well. Each service gets a whole
# deck, so every seed shows every fault.
_DEALT: Final = ("silent", "outage", "late", "broken", "lost", "refused", "slow")
_COUNTS: Final[dict[Service, tuple[int, ...]]] = {
    "payments": (2, 1, 2, 2, 2, 2, 2),
    "mail": (2, 1, 2, 2, 1, 1, 2),
    "tracker": (2, 1, 2, 2, 1, 1, 2),
    "warehouse": (1, 0, 1, 1, 1, 1, 2),
}
DECKS: Final[dict[Service, dict[ScheduledFault, int]]] = {
    service: {ScheduledFault(fault): count for fault, count in zip(_DEALT, counts, strict=True) if count}
    for service, counts in _COUNTS.items()
}
OUTAGE_CALLS: Final = 4
SECOND_CALL: Final = (ScheduledFault.SILENT, ScheduledFault.BROKEN, ScheduledFault.LOST)
SECOND_CALL_CHANCE: Final = 0.25


@dataclass(frozen=True)
class Kill:
    """SIGKILL for the worker that sent `request` to `service`.

    `arrival`: before the service did anything. `commit`: the effect is done, its answer not yet sent.
    """

    event: int
    request: int
    service: Service
    moment: Moment


@dataclass(frozen=True)
class FaultSchedule:
    """The faults of the first and the second call for each request, and the places where workers die."""

    first: dict[Spot, ScheduledFault]
    second: dict[Spot, ScheduledFault]
    kills: tuple[Kill, ...]

    def fault(self, service: Service, request: int, call: int) -> ScheduledFault:
        """The fault of the `call`-th call (from 1) that `service` gets for `request`."""
        first = self.first.get((service, request), ScheduledFault.NONE)
        if first is ScheduledFault.OUTAGE and call <= OUTAGE_CALLS:
            return ScheduledFault.SILENT if call == 1 else ScheduledFault.LOST
        if call == 1 or first is ScheduledFault.REFUSED:
            return first
        return self.second.get((service, request), ScheduledFault.NONE) if call == 2 else ScheduledFault.NONE

    def kill(self, service: Service, request: int, moment: Moment) -> Kill | None:
        spot = (service, request, moment)
        return next((kill for kill in self.kills if (kill.service, kill.request, kill.moment) == spot), None)


def lane_of(request: int) -> int:
    """The number of the worker, from 0, that works on this request."""
    return (request - 1) % LANES


def event_of(request: int, service: Service) -> int:
    """The number of an effect, from 1, in file order."""
    return (request - 1) * len(SERVICES) + SERVICES.index(service) + 1


def make_schedule(seed: int) -> FaultSchedule:
    first: dict[Spot, ScheduledFault] = {
        (service, request): fault for service in SERVICES for request, fault in enumerate(_deal(seed, service), 1)
    }
    dice = random.Random(f"second calls/{seed}")
    second = {spot: dice.choice(SECOND_CALL) for spot in first if dice.random() < SECOND_CALL_CHANCE}
    return FaultSchedule(first, second, tuple(sorted(_kills(seed, first), key=lambda kill: kill.event)))


def _deal(seed: int, service: Service) -> list[ScheduledFault]:
    cards = [fault for fault, how_many in DECKS[service].items() for _ in range(how_many)]
    cards += [ScheduledFault.NONE] * (REQUESTS - len(cards))
    random.Random(f"deck/{seed}/{service}").shuffle(cards)
    return cards


def _kills(seed: int, first: dict[Spot, ScheduledFault]) -> Iterator[Kill]:
    """Kills spread over the lanes, over each lane's beginning, middle and end, and over the services."""
    dice = random.Random(f"kills/{seed}")
    services = cycle(dice.sample(SERVICES, len(SERVICES)))
    moments: Iterator[Moment] = cycle(("commit", "arrival", "commit"))
    for lane in range(LANES):
        requests = [request for request in range(1, REQUESTS + 1) if lane_of(request) == lane]
        for part in range(KILLS_PER_LANE):
            service, moment = next(services), next(moments)
            begin, end = (len(requests) * bound // KILLS_PER_LANE for bound in (part, part + 1))
            spots = [request for request in requests[begin:end] if _fits(first[service, request], moment)] or [
                request for request in requests if _fits(first[service, request], moment)
            ]
            request = dice.choice(spots)
            yield Kill(event_of(request, service), request, service, moment)


def _fits(fault: ScheduledFault, moment: Moment) -> bool:
    """True if a worker can be killed in a first call that meets this fault.

    A refused call has no effect to cut off, and an outage leaves no tries for a worker that died first.
    """
    if moment == "commit":
        return fault in COMMITS_AT_ONCE
    return fault not in {ScheduledFault.REFUSED, ScheduledFault.OUTAGE}
