"""The use cases of pages and API: list, show, answer. Each acts for a principal, and is authorized here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

from holdfast.agent.agent import Agent, AnyAgent
from holdfast.agent.submission import Submission
from holdfast.control.approvals import checked_proof
from holdfast.control.queues import Submitted, submit
from holdfast.control.service import ControlService
from holdfast.engine.commands import Applied
from holdfast.errors import NotAllowed, QueueDraining, QueueFull, SignInNeeded, UnknownRun, UsageError
from holdfast.inspect.monitors.passes import Acknowledgement
from holdfast.inspect.reader import JournalReader, ReadRecord
from holdfast.inspect.timeline import Timeline, timeline
from holdfast.journal.port import Post, RunRow, RunStatus
from holdfast.model.operation import OperationState
from holdfast.model.system import is_system
from holdfast.model.transaction import TransactionState
from holdfast.people import answers as a
from holdfast.people.answers import OneOf, answer_all
from holdfast.people.assignments import handed
from holdfast.people.dossier import Dossier, dossier_of
from holdfast.people.lessons import decide_lesson
from holdfast.people.loaded_item import LoadedItem, checked_shown, load_item
from holdfast_console.auth.authenticator import Authenticator
from holdfast_console.auth.authorize import Permission, PermissionScope, Principal, may
from holdfast_console.reviews.report import ReviewReport
from holdfast_console.web.health import HealthQuery, ReportCache
from holdfast_console.web.listing import ItemsPage, ItemsQuery, RunPage, listed, run_page
from holdfast_console.web.problems import ProblemResponse
from holdfast_console.web.schemas import SubmitRequest
from holdfast_console.web.silent_failures import WatchedFailures, acknowledge_shown, watched_failures

if TYPE_CHECKING:
    from holdfast.telemetry.prometheus import Prometheus


class UseCases:
    """The use cases of the web application over one open service."""

    def __init__(self, service: ControlService, authenticator: Authenticator) -> None:
        self.service: Final = service
        self.authenticator: Final = authenticator
        self._reports: Final = ReportCache(service.reader)
        self._measured: Prometheus | None = None

    @property
    def reader(self) -> JournalReader:
        """The reader of the journal."""
        return self.service.reader

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return self.authenticator.now_ms

    # --- looking ---------------------------------------------------------------------------------------------

    async def listed(self, who: Principal, asking: ItemsQuery) -> ItemsPage:
        """A page of the inbox, without what the caller may not see. Raises `NotAllowed` and `UsageError`."""
        await self.authenticator.require_somewhere(who, "look")

        @cache  # many items, few places
        def allowed(tool: str, queue: str) -> bool:
            return may(who, "look", tool, queue)

        return await listed(self.reader, asking, self.now_ms, lambda item: allowed(item.tool, item.queue))

    async def dossier(self, who: Principal, item: str) -> Dossier:
        """Everything about one item. Raises `UnknownRun`, `UsageError` and `NotAllowed`."""
        now, about = await self._seen(who, item)
        await self.authenticator.require(who, "look", about)
        return await dossier_of(self.reader, now)

    async def runs(self, who: Principal, status: RunStatus | None, limit: int, after: str) -> list[RunRow]:
        """Runs by name, without those that only send notices."""
        await self.authenticator.require(who, "look", PermissionScope("the runs"))
        return await self.reader.page(status, limit, after, everything=False)

    async def row(self, who: Principal, run: str) -> RunRow:
        """The row of a run in the listing. Raises `UnknownRun`."""
        await self.authenticator.require(who, "look", PermissionScope(run))
        return await self.reader.row(run)

    async def run_page(self, who: Principal, run: str, to: int | None) -> RunPage:
        """A page of the timeline of a run. Raises `UnknownRun`."""
        await self.authenticator.require(who, "look", PermissionScope(run))
        return await run_page(self.reader, run, to)

    async def timeline(self, who: Principal, run: str) -> Timeline:
        """The whole timeline of a run. Raises `UnknownRun`."""
        await self.authenticator.require(who, "look", PermissionScope(run))
        rows: list[ReadRecord] = await self.reader.all_records(run)
        return timeline(run, (record for _, record in rows))

    async def health(self, who: Principal, asking: HealthQuery) -> ReviewReport:
        """How people keep up, and what they found; it is about everything, so it takes a role everywhere."""
        await self.authenticator.require(who, "look", PermissionScope("the health of the inbox"))
        return await self._reports.recent(asking.days, self.now_ms)

    async def failures(self, who: Principal) -> WatchedFailures:
        """The silent failures and the proposed lessons. They are about everything, so they take a role everywhere."""
        await self.authenticator.require(who, "look", PermissionScope("the silent failures"))
        return await watched_failures(self.reader, self.now_ms)

    async def failures_to_see(self, who: Principal) -> int:
        """The number of silent failures and proposed lessons; 0 for a caller who may not see them."""
        if not may(who, "look"):
            return 0
        found = await watched_failures(self.reader, self.now_ms)
        return len(found.findings) + len(found.lessons)

    async def acknowledge(self, who: Principal, finding: str, newest_ms: int, why: str) -> None:
        """Record that the caller has seen a finding with this evidence. Raises `NotAllowed` and `UsageError`."""
        await self.authenticator.require(who, "answer", PermissionScope(f"the silent failure {finding}"))
        await acknowledge_shown(self.reader, Acknowledgement(finding, newest_ms, who.name, why), self.now_ms)

    async def decide_lesson(self, who: Principal, lesson: str, *, approved: bool, why: str) -> None:
        """Approve or decline a proposed lesson. Raises `NotAllowed` and `UsageError`."""
        await self.authenticator.require(who, "answer", PermissionScope(f"the lesson {lesson}"))
        await decide_lesson(self.service.engine, lesson, approved=approved, by=who.name, why=why)

    async def metrics(self, who: Principal) -> bytes:
        """The metrics of the journal, for Prometheus. They are about everything, so they take a role everywhere."""
        await self.authenticator.require(who, "look", PermissionScope("the metrics of the journal"))
        if self._measured is None:
            from holdfast.telemetry import Prometheus  # noqa: PLC0415 - it needs an extra

            self._measured = Prometheus()
        return await self._measured.scrape(self.service.engine)

    # --- submitting ------------------------------------------------------------------------------------------

    async def submit(self, who: Principal, asked: SubmitRequest) -> Submitted:
        """Store a run in a queue, in the caller's name. Raises as `Holdfast.submit` does, and `NotAllowed`.

        The role has to hold everywhere: a run calls any tool of its agent.
        """
        await self.authenticator.require(who, "submit", PermissionScope(f"runs of {asked.agent}"))
        found = self.service.engine.agents.get(asked.agent)
        if not isinstance(found, Agent) or is_system(asked.agent):
            raise ProblemResponse(
                HTTPStatus.NOT_FOUND,
                f"this server does not have the agent {asked.agent!r}",
                known="nothing was submitted",
                next_step="name its file when the server is started: holdfast serve FILE.py:AGENT",
            )
        try:
            budget = None if asked.budget is None else asked.budget.limits()
        except ValueError as error:
            raise ProblemResponse(
                HTTPStatus.UNPROCESSABLE_ENTITY, f"budget: {error}", known="nothing was submitted",
                next_step="write an amount with its currency: 2.50 EUR",
            ) from error  # fmt: skip
        how = Submission(asked.queue, asked.priority, asked.at, asked.tenant, budget)
        try:
            agent = cast("AnyAgent", found)  # type: ignore[redundant-cast]  # pyright does not know its parameters
            given = agent.parse_input(bytes(asked.input))
            return await submit(self.service.engine, agent, given, how, key=asked.key, by=who.name)
        except (QueueFull, QueueDraining):
            raise
        except UsageError as misfit:
            status = HTTPStatus.UNPROCESSABLE_ENTITY
            raise ProblemResponse(status, misfit.message, known=misfit.known, next_step=misfit.next_step) from misfit

    # --- answering -------------------------------------------------------------------------------------------

    async def answer(
        self, who: Principal, item: str, given: a.Answer, shown: str, *, also: Post | None = None
    ) -> Applied:
        """Give the caller's answer to what was shown. Raises `NotAllowed`, `UnknownRun` and `UsageError`.

        `also` is a ledger entry in the same commit: if that is taken already, the answer is refused.
        """
        now = await self._judged(who, item, given, shown)
        if also is not None:
            (applied,) = await self._all_or_none(who, [(now, shown)], given, also)
            return applied
        return await a.answer(self._voice(who), now, given, by=who.name, shown=shown)

    async def answer_all(self, who: Principal, items: Sequence[tuple[str, str]], given: a.Answer) -> list[Applied]:
        """Give the same answer to several items, each as (item, digest shown): all or none. Raises as `answer` does.

        Returns the result of each, in the order of the items: two of one run have the same result.
        """
        judged = [await self._judged(who, item, given, shown) for item, shown in items]
        return await self._all_or_none(
            who, [(now, shown) for now, (_, shown) in zip(judged, items, strict=True)], given
        )

    async def _all_or_none(
        self, who: Principal, judged: Sequence[tuple[LoadedItem, str]], given: a.Answer, *also: Post
    ) -> list[Applied]:
        answers = [OneOf(now.item, given, shown, now) for now, shown in judged]
        applied = {one.run: one for one in await answer_all(self._voice(who), answers, by=who.name, also=also)}
        return [applied.get(now.run, Applied(now.run, at_once=True)) for now, _ in judged]  # hand-over notifies no run

    def _voice(self, who: Principal) -> ControlService:
        """The same service, which records with each answer how its giver was authenticated."""
        return ControlService(self.service.engine, via=who.via, proven_ms=who.proven_ms)

    async def _judged(self, who: Principal, item: str, given: a.Answer, shown: str) -> LoadedItem:
        now, about = await self._seen(who, item)
        checked_shown(now, shown)
        yes = isinstance(given, a.Approve | a.StandIn)  # to decline or change one's own proposal sends nothing
        if yes and isinstance(now.subject, OperationState):
            await self._checked_proof(who, now, now.subject)
        await self.authenticator.require(who, permission_for(given), about, proposers=now.proposers if yes else ())
        return now

    async def _checked_proof(self, who: Principal, now: LoadedItem, subject: OperationState) -> None:
        """Refuse, on record, an approval without the sign-in that the question requires. Raises `SignInNeeded`."""
        try:
            checked_proof(now.item, subject, who.via, who.proven_ms, self.now_ms)
        except SignInNeeded as needed:
            await self.authenticator.note_refused(who, "answer", now.item, needed.message)
            raise

    async def _seen(self, who: Principal, item: str) -> tuple[LoadedItem, PermissionScope]:
        """The item, and where it belongs. One that the caller may not see is reported as missing: `UnknownRun`."""
        hidden = UnknownRun(
            f"the inbox has no item {item} for you", next_step="open the inbox: it lists what waits for you"
        )
        try:
            now = await load_item(self.reader, item)
        except UsageError:
            if may(who, "look"):
                raise
            raise hidden from None
        step = f"{now.step}/" if isinstance(now.subject, TransactionState) else now.step
        given = await handed(self.reader.journal, now.run, step)
        about = PermissionScope(now.item, now.tool, given.queue_now(now.queue, now.asked_ms))
        if not may(who, "look", about.tool, about.queue):
            with suppress(NotAllowed):
                await self.authenticator.require(who, "look", about)  # it is on record that they tried
            raise hidden
        return now, about


def permission_for(given: a.Answer) -> Permission:
    """The permission that this answer requires."""
    match given:
        case a.Delegate() | a.Snooze() | a.Escalate():
            return "hand"
        case a.Resume():
            return "order"
        case (
            a.HappenedAnswer()
            | a.DidNotHappenAnswer()
            | a.RetrySameKey()
            | a.CompensateAnswer()
            | a.Abandon()
            | a.TakeOver()
        ):
            return "resolve"
        case a.Approve() | a.Edit() | a.Decline() | a.StandIn() | a.AskBack() | a.ReplyAnswer() | a.Right() | a.Wrong():
            return "answer"
