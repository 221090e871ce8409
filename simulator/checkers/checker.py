"""The checker: every invariant, after every event. It reads the world, the durable records, and what callers heard.

It never asks the product what it thinks. The numbers are those of the invariants in the documentation.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beforehand.journal.port import Write
from beforehand.journal.record_codec import decode
from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.model.outcome import Outcome
from beforehand.testing.loop import Actor
from beforehand.testing.world.disk import Backup
from simulator.checkers.approvals import Approvals, arguments_in
from simulator.checkers.budgets import Budgets
from simulator.checkers.deferred import Answers
from simulator.checkers.families import Families
from simulator.checkers.hosts import Hosts
from simulator.checkers.models import Models
from simulator.checkers.plans import Plans
from simulator.checkers.processes import Processes
from simulator.checkers.queues import Queues
from simulator.checkers.records import Replays, Standing, check_records
from simulator.checkers.schedules import Schedules
from simulator.checkers.timing import Timing
from simulator.checkers.transactions import Trips
from simulator.people.messages import Messages
from simulator.people.policies import Rulings
from simulator.people.questions import Questions
from simulator.people.reviews import CompensationOrders, Reviews
from simulator.people.standing_permissions import Permits
from simulator.plan import Script
from simulator.services.network import LIE
from simulator.services.service import Effect, Request

if TYPE_CHECKING:
    from simulator.world import World

NATURAL: Final = frozenset({"switch", "note", "unseat", "leave", "unberth", "label"})
PLAIN: Final = frozenset({"ship", "send", "permit", "dare", "grant", "guide", "unguide", "lend", "vouch"})
LIMIT_ATTEMPTS: Final = 5


class Violation(msgspec.Struct, frozen=True):
    """An invariant that does not hold, where, and when."""

    invariant: int
    what: str
    at_ms: int


class Checker:
    """Checks one simulation."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.violations: Final[list[Violation]] = []
        self._reading_back = False
        self.operations: Final[dict[str, Standing]] = {}
        self._effects: defaultdict[str, list[Effect]] = defaultdict(list)
        self.trips: Final = Trips(world, self.broken, self._effects)
        self.answers: Final = Answers(world, self.broken, self._effects)
        self.plans: Final = Plans(world, self.broken, self._effects)
        self.approvals: Final = Approvals(world, self.broken)
        self.permits: Final = Permits(world, self.broken)
        self.messages: Final = Messages(world, self.broken)
        self.rulings: Final = Rulings(world, self.broken)
        self.questions: Final = Questions(world, self.broken)
        self.replays: Final = Replays(self.broken)
        self.compensations: Final = CompensationOrders(world, self.broken, self._effects)
        self.reviews: Final = Reviews(world, self.broken, self._effects, self.compensations)
        self.timing: Final = Timing(world, self.broken)
        self.processes: Final = Processes(world, self.broken)
        self.hosts: Final = Hosts(world, self.broken)
        self.queues: Final = Queues(world, self.broken)
        self.schedules: Final = Schedules(world, self.broken)
        self.budgets: Final = Budgets(world, self.broken)
        self.families: Final = Families(world, self.broken)
        self.models: Final = Models(world, self.broken)
        self._told: list[tuple[Outcome[Any], int]] = []
        self._answers: dict[str, list[str]] = {}
        self._tokens: dict[str, int] = {}
        self._residue: set[tuple[str, int]] = set()
        self._overslept: set[tuple[str, int]] = set()  # those of them that left once the outcome was known
        self._acknowledged: list[tuple[str, int, bytes]] = []
        self._canary: Final = world.canary.encode()
        self._decided: defaultdict[str, set[str]] = defaultdict(set)
        self._claims: dict[str, tuple[str, frozenset[str]]] = {}

    def broken(self, invariant: int, what: str) -> None:
        """Note a violation, and end the simulation."""
        if self._reading_back:
            return
        self.violations.append(Violation(invariant, what, self._world.now_ms()))
        self._world.tell(None, f"INVARIANT {invariant} BROKEN: {what}")
        self._world.loop.halted = True

    def tool_of(self, name: str) -> str:
        """The tool of an operation that is on record."""
        intent = self.operations[name].intent
        assert intent is not None, name
        return intent.tool

    def happened_at_all(self, name: str) -> bool:
        """Whether a service did what that operation is about."""
        return bool(self._effects.get(name))

    def leaked(self, where: str) -> None:
        """The value of a secret was found where it has no business."""
        if not any(one.invariant == 23 for one in self.violations):
            self.broken(23, f"the value of a secret stands in {where}")

    def asked(self, run: str, step: str, workers: list[str]) -> None:
        """A model is asked. A process that took the run after the answer was on record has no reason to."""
        owner, known = self._claims.get(run, ("", frozenset[str]()))
        if owner in workers and step in known:
            self.broken(13, f"run {run} asked its model again for {step}, and had the answer on record")

    def owned(self, run: str, token: int) -> bool:
        """Whether nothing durable of the run was written under a newer fencing token than this one."""
        return token >= self._tokens.get(run, 0)

    def restored(self, backup: Backup) -> None:
        """An old copy stands in the place of the journal: it says less than was known, and what is told begins anew."""
        self._reading_back = True
        self.operations.clear()
        self._tokens.clear()
        self._told.clear()
        self._answers.clear()
        self._acknowledged.clear()
        self._decided.clear()
        self._claims.clear()
        people = self.approvals, self.permits, self.messages, self.rulings, self.reviews, self.questions
        for part in (
            self.trips,
            self.answers,
            self.plans,
            *people,
            self.compensations,
            self.replays,
            self.timing,
            self.processes,
        ):
            part.restored()
        for run, (_, rows) in backup.runs.items():
            for row in rows:
                self._tokens[run] = row.token
                self._record(run, decode(row.body))
        self._reading_back = False

    # --- events: requests ------------------------------------------------------------------------------------

    def about_to_send(self, request: Request) -> None:
        """A tool passed its own check and is about to send."""
        operation = self.operations.get(request.operation)
        started = operation.attempts.get(request.attempt) if operation else None
        if started is not None and started.send_by and self._world.now_ms() > started.up + started.send_by:
            self.broken(10, f"{request.operation} attempt {request.attempt} is sent after its send-by deadline")
        self.replays.sent()
        self.families.about_to_send(request)

    def paused_before_the_first_byte(self, request: Request) -> None:
        """Between the last check and the first byte nothing but a key can help: the documented limit of any runtime."""
        self._residue.add((request.operation, request.attempt))

    def stood_still(self, operation: str, attempt: int) -> bool:
        """Whether that attempt was paused before its first byte."""
        return (operation, attempt) in self._residue

    def arrived(self, request: Request) -> None:
        """A write is at its service."""
        self._world.tell(None, f"{request.service} gets {request.operation} attempt {request.attempt}")
        if self._world.now_ms() <= self._world.restored_ms:
            return  # it left before the records of it were lost
        if self._world.store.identity.trust == "distrustful":
            self.broken(5, f"{request.operation} was sent before anybody had looked at the restored journal")
        operation = self.operations.get(request.operation)
        started = operation.attempts.get(request.attempt) if operation else None
        if operation is None or started is None:
            self.broken(1, f"{request.operation} attempt {request.attempt} arrived and is not on record")
            return
        assert operation.intent is not None, request
        recorded = arguments_in(operation.intent)
        sent = {name: value for name, value in request.arguments.items() if name in recorded}
        if request.service == "sign" and request.arguments["password"] != self._world.canary:
            self.broken(8, f"{request.operation} was sent without its secret")
        if sent != recorded:
            self.broken(8, f"{request.operation} was sent with {sent}, and recorded with {recorded}")
        self.trips.arrived(request)
        self.plans.arrived(request)
        self.approvals.arrived(request)
        if isinstance(operation.settled, r.OperationSettled):
            if self.stood_still(request.operation, request.attempt):
                self._overslept.add((request.operation, request.attempt))
            late = request.attempt in operation.ended
            if not late and operation.settled.status != "unknown" and request.service not in NATURAL:
                self._world.tell(None, f"{request.operation} attempt {request.attempt} arrives after the outcome")

    def happened(self, effect: Effect) -> None:
        """A service did something."""
        who = effect.operation or "another party"
        self._world.tell(None, f"{effect.service} does it for {who}: {effect.thing} = {effect.value}")
        if not effect.operation:
            return
        done = self._effects[effect.operation]
        done.append(effect)
        operation = self.operations.get(effect.operation)
        allowed = 1 + (operation.retries if operation else 0)
        stood_still = (effect.operation, effect.attempt) in self._residue  # a key may be forgotten meanwhile
        if effect.service not in NATURAL and len(done) > allowed and not stood_still:
            attempts = ", ".join(str(one.attempt) for one in done)
            self.broken(2, f"{effect.operation} happened {len(done)} times (attempts {attempts})")
        if effect.service == "book":
            others = [one for one in self._world.services["book"].effects if one.thing == effect.thing]
            if len(others) > allowed:
                self.broken(17, f"{effect.thing} was booked {len(others)} times: {[one.operation for one in others]}")
        for part in (self.answers, self.plans, self.reviews, self.questions, self.timing, self.hosts):
            part.happened(effect)
        if effect.service == "switch":
            self._lost_update(effect, done)

    def _lost_update(self, effect: Effect, done: list[Effect]) -> None:
        """A repeat must not undo what another party did after the first application."""
        first = done[0]
        between = [
            one
            for one in self._world.services["switch"].effects
            if one.thing == effect.thing and first.number < one.number < effect.number
        ]
        late = (effect.operation, effect.attempt) in self._residue or first.at_ms <= self._world.restored_ms
        if not late and any(one.operation != effect.operation for one in between):
            self.broken(2, f"{effect.operation} was applied again over what another party did to {effect.thing}")

    # --- events: records -------------------------------------------------------------------------------------

    def stored(self, write: Write) -> None:
        """Records became durable."""
        run = write.lease.run
        for row in write.rows:
            if self._canary in row.body:
                self.leaked(f"record {row.seq} of run {run}")
            if row.token < self._tokens.get(run, 0):
                self.broken(7, f"run {run}: record {row.seq} was written under token {row.token} after a newer one")
            self._tokens[run] = row.token
            self._record(run, decode(row.body))

    def _record(self, run: str, record: r.Record) -> None:
        self._world.reach.records[r.kind_of(record)] += 1
        self.trips.heard(run, record)
        self.answers.heard(run, record)
        self.plans.heard(run, record)
        self.approvals.heard(run, record)
        self.rulings.heard(run, record)
        self.timing.heard(run, record)
        self.processes.heard(run, record)
        self.hosts.heard(run, record)
        self.queues.heard(run, record)
        self.schedules.heard(run, record)
        self.budgets.heard(run, record)
        self.families.heard(run, record)
        self.models.heard(run, record)
        self._decisions(run, record)
        step = getattr(record, "step", "")
        if step:
            self._of_operation(run, step, record)
        else:
            self._of_run(run, record)
        self.messages.heard(run, record)
        self.questions.heard(run, record)
        self.compensations.heard(run, record)
        self.reviews.heard(run, record)

    def _of_operation(self, run: str, step: str, record: r.Record) -> None:
        name = operation_id(run, step)
        known = self.operations.get(name)
        if known is None:
            known = self.operations[name] = Standing(run, step)
        match record:
            case r.OperationPlanned(intent=intent):
                known.intent = known.intent or intent
            case r.OperationParked(asks=asks):
                known.asked = bool(asks)
            case r.AttemptStarted():
                self._started(name, known, record)
            case r.AttemptEnded() | r.OperationDeferred() | r.LateReport():
                known.told(record)
            case r.Verified(verdict="did_not_happen", believable=True):
                self._believed(name, known)
            case r.OperationSettled():
                self._settled(name, known, record)
            case r.ArgumentsEdited() | r.ResultGiven() | r.Resolved():
                known.said(record)
            case _:
                return

    def _decisions(self, run: str, record: r.Record) -> None:
        """Which answers are on record, and which of them were when the run was last taken."""
        if isinstance(record, r.DecisionRecorded):
            self._decided[run].add(record.step)
        elif isinstance(record, r.Claimed):
            self._claims[run] = (record.worker, frozenset(self._decided[run]))

    def _of_run(self, run: str, record: r.Record) -> None:
        if isinstance(record, r.RunStoppedRecord) and self.hosts.may_stop(run, record):
            return
        if isinstance(record, r.RunStoppedRecord) and record.reason in {"error", "diverged"}:
            self.broken(14, f"run {run} stopped ({record.reason}), and its agent never changes: {record.error}")

    def _started(self, name: str, known: Standing, record: r.AttemptStarted) -> None:
        known.intent = known.intent or record.intent
        if record.number in known.attempts:
            self.broken(6, f"{name}: attempt {record.number} was started twice")
        known.attempts[record.number] = record
        if record.standing:
            self.permits.used(name, record, known.intent)
        if known.settled is not None and getattr(known.settled, "status", "") != "unknown":
            self.broken(6, f"{name}: attempt {record.number} was started after a final outcome")
        if known.unknown and not known.retries:
            self.broken(5, f"{name}: attempt {record.number} was started after a person had been asked")
        if len(known.attempts) - len(known.unsent) - known.deaths > LIMIT_ATTEMPTS + known.retries:
            self.broken(10, f"{name}: {len(known.attempts)} attempts, and {LIMIT_ATTEMPTS} are allowed")

    def _believed(self, name: str, known: Standing) -> None:
        """Absence is believed: then nothing may be on its way any more, and nothing may have happened."""
        tool = known.intent.tool if known.intent else ""
        service = self._world.services.get(tool)
        if service is not None and service.in_flight.get(name, 0) > 0:
            self.broken(5, f"{name}: absence was believed while a request was on its way")
        if self._effects.get(name) and tool not in NATURAL:
            self.broken(5, f"{name}: absence was believed, and it has happened")

    def _settled(self, name: str, known: Standing, record: r.OperationSettled) -> None:
        final = known.settled is not None and getattr(known.settled, "status", "") != "unknown"
        if final:
            self.broken(6, f"{name} was settled twice")
        known.settled = record
        known.unknown = known.unknown or record.status == "unknown"
        tool = known.intent.tool if known.intent else ""
        self._world.reach.endings[f"{tool} {record.status} ({record.rule or 'returned'})"] += 1
        if record.basis.by == "person":
            return
        if record.status == "succeeded" and not self._effects.get(name):
            self.broken(3, f"{name} is recorded as succeeded, and nothing happened")
        if record.status == "failed" and known.unknown and tool in PLAIN and not known.proved:
            self.broken(5, f"{name}: a plain write left unknown without a person")

    # --- events: answers -------------------------------------------------------------------------------------

    def told(self, actor: Actor, outcome: Outcome[Any]) -> None:
        """Agent code heard an outcome."""
        self._world.tell(actor, f"receives {outcome.operation} {outcome.status}")
        if not actor.alive:
            return
        self._told.append((outcome, self._world.now_ms()))
        self.approvals.told(outcome)
        self.rulings.told(outcome)
        self.reviews.told(outcome)
        source = outcome.reused or outcome.operation
        person = outcome.basis is not None and outcome.basis.by == "person"
        if outcome.tool == "look" or person:
            return
        done = self._effects.get(source, [])
        if outcome.status == "succeeded" and not done:
            self.broken(12, f"the agent heard that {outcome.operation} succeeded, and nothing happened")
        elif outcome.status == "succeeded" and outcome.code:
            self.broken(12, f"the agent did not hear the result of {outcome.operation}: {outcome.code}")
        elif outcome.status == "succeeded" and outcome.tool in PLAIN and not self._is_settled(source):
            self.broken(12, f"the agent heard that {outcome.operation} succeeded before that was durable")
        elif outcome.status == "succeeded" and outcome.tool not in NATURAL:
            if outcome.value not in {LIE, *(effect.value for effect in done)}:
                self.broken(12, f"the agent heard {outcome.value!r} from {outcome.operation}, which is not what it did")
        elif outcome.status == "pending":
            self.answers.told_pending(outcome)
        elif outcome.status == "unknown":
            self.broken(12, f"the agent heard that {outcome.operation} is unknown, and had not asked to")

    def _is_settled(self, name: str) -> bool:
        known = self.operations.get(name)
        return known is not None and known.settled is not None

    def answered(self, script: Script, result: list[str]) -> None:
        """A caller got the result of a run."""
        before = self._answers.setdefault(script.id, result)
        if before != result and not self.hosts.forgot(script.id):
            self.broken(14, f"run {script.id} gave two results: {before} and {result}")

    def acknowledged(self, write: Write) -> None:
        """A process was told that this is durable."""
        self._acknowledged.extend((write.lease.run, row.seq, row.hash) for row in write.rows)

    # --- at the end of time ----------------------------------------------------------------------------------

    def meet(self, fault: str) -> None:
        """A fault strikes a process: note which kinds of operation it finds in which state."""
        for known in self.operations.values():
            state = known.state()
            if state and known.intent is not None:
                self._world.reach.meetings[f"{fault} x {state} x {known.intent.tool}"] += 1

    async def at_the_end(self) -> None:
        """Everything is drained: nothing will happen any more."""
        self._at_the_end_of_operations()
        await self.answers.at_the_end()
        await self.approvals.at_the_end()
        await self.permits.at_the_end()
        await self.messages.at_the_end()
        await self.questions.at_the_end()
        await self.hosts.at_the_end()
        self.schedules.at_the_end()
        await self.budgets.at_the_end()
        await self.families.at_the_end()
        if self._world.restored_ms < 0:  # what was done and is forgotten stands, and no record can speak of it
            self.trips.at_the_end()
            self.compensations.at_the_end()
            await self.plans.at_the_end()
        await check_records(self._world.journal, self._acknowledged, self.broken)
        if any(self._canary in part for part in self._world.journal.everything()):
            self.leaked("the journal")
        for accident in self._world.accidents:
            self.broken(19, f"an unhandled error: {accident}")

    def _in_time(self, name: str) -> bool:
        """True if it happened, but for calls that stood still before their first byte until it was settled."""
        return any((name, effect.attempt) not in self._overslept for effect in self._effects.get(name, ()))

    def _at_the_end_of_operations(self) -> None:
        for name, known in self.operations.items():
            settled, done = known.settled, self._in_time(name) and not self.answers.taken_back(name)
            if not isinstance(settled, r.OperationSettled) or settled.basis.by == "person" or known.person:
                continue
            if settled.status in {"failed", "cancelled"} and done:
                self.broken(4, f"{name} is {settled.status} ({settled.rule}), and it happened")
        for outcome, at in self._told:
            person = outcome.basis is not None and outcome.basis.by == "person"
            done = self._in_time(outcome.operation) and not self.answers.taken_back(outcome.operation)
            if outcome.status in {"failed", "cancelled"} and done and not person:
                self.broken(12, f"the agent heard at {at} ms that {outcome.operation} {outcome.status}; it happened")
