"""The use cases of pages and API: list, show, answer. Each acts for a principal, and is authorized here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

import msgspec

from beforehand.agent.agent import Agent, AnyAgent
from beforehand.agent.submission import Submission
from beforehand.control.approvals import checked_proof
from beforehand.control.queues import Submitted, submit
from beforehand.control.service import ControlService
from beforehand.engine.commands import Applied
from beforehand.errors import (
    NotAllowed,
    ParameterMismatch,
    QueueDraining,
    QueueFull,
    SignInNeeded,
    UnknownRun,
    UsageError,
)
from beforehand.inspect.monitors.findings import Acknowledgement
from beforehand.inspect.reader import JournalReader, ReadRecord
from beforehand.inspect.timeline import Timeline, timeline
from beforehand.journal.port import Post, RunRow, RunStatus
from beforehand.model.ids import operation_id
from beforehand.model.names import is_among, same_person
from beforehand.model.operation import OperationState
from beforehand.model.system import is_system
from beforehand.model.transaction import TransactionState
from beforehand.people import answers as a
from beforehand.people.answering import OneOf, answer, answer_all
from beforehand.people.assignments import handed
from beforehand.people.dossier import Dossier, dossier_of
from beforehand.people.items import placed
from beforehand.people.lessons import decide_lesson
from beforehand.people.loaded_item import LoadedItem, checked_shown, load_item
from beforehand_console.auth.accounts import every_account
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import REQUIRED_ROLES, Permission, PermissionScope, Principal, may
from beforehand_console.reviews.report import ReviewReport
from beforehand_console.reviews.shadow_reviews import (
    DrawnCall,
    ReviewWord,
    ShadowReview,
    dossier_of_call,
    drawn_call,
    open_reviews,
    review,
)
from beforehand_console.web.health import HealthQuery, ReportCache
from beforehand_console.web.listing import READY, ItemsPage, ItemsQuery, RunPage, is_ready, items_in, listed, run_page
from beforehand_console.web.problems import ProblemResponse
from beforehand_console.web.schemas import SubmitRequest
from beforehand_console.web.silent_failures import WatchedFailures, acknowledge_shown, watched_failures

if TYPE_CHECKING:
    from beforehand.telemetry.prometheus import Prometheus


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
        found = await dossier_of(self.reader, now)
        lacking = "" if not found.open else await self._nobody_left(now, about)
        answered = found.decided is not None and not found.decided.taken
        fits = () if answered else tuple(name for name in found.fits if _may_give(who, name, now, about))
        risks = (lacking, *found.risks) if lacking else found.risks
        return msgspec.structs.replace(found, risks=risks, fits=fits, answers=found.answers if fits else ())

    async def aftermath(self, who: Principal, found: Dossier) -> Aftermath:
        """The state of the run of an item that has its answer, and the next item that waits for this person."""
        row, following = await self.reader.row(found.run), ""
        for one in await placed(self.reader, now_ms=self.now_ms):
            theirs = one.to in ("", who.name) and not one.rests_ms and may(who, "answer", one.tool, one.queue)
            if theirs and one.item != found.item:
                following = one.item
                break
        return Aftermath(_then(row, found, self.now_ms), following)

    async def _nobody_left(self, now: LoadedItem, about: PermissionScope) -> str:
        """The right that no account has, where an item waits for one; empty before there are accounts."""
        accounts = [one.principal("password") for one in await every_account(self.reader.journal) if not one.disabled]
        needs: Permission = "resolve" if now.kind == "review" or a.is_stopped_run(now.kind, now.item) else "answer"
        if not accounts or any(
            may(one, needs, about.tool, about.queue) and not is_among(one.name, now.proposers) for one in accounts
        ):
            return ""
        role = f"the role {REQUIRED_ROLES[needs]} for {about.tool or 'everything'}"
        but = f", besides {', '.join(now.proposers)}, who proposed it" if now.proposers else ""
        return f"no account can answer this: it takes {role}{but}"

    async def runs(self, who: Principal, status: RunStatus | None, limit: int, after: str) -> list[RunRow]:
        """Runs by name, without those that only send notices."""
        await self.authenticator.require(who, "look", PermissionScope("the runs"))
        return await self.reader.page(status, limit, after, everything=False)

    async def row(self, who: Principal, run: str) -> RunRow:
        """The row of a run in the listing. Raises `UnknownRun`."""
        await self._required_to_look(who, run)
        return await self.reader.row(run)

    async def run_page(self, who: Principal, run: str, to: int | None) -> RunPage:
        """A page of the timeline of a run. Raises `UnknownRun`."""
        await self._required_to_look(who, run)
        return await run_page(self.reader, run, to)

    async def timeline(self, who: Principal, run: str) -> Timeline:
        """The whole timeline of a run. Raises `UnknownRun`."""
        await self._required_to_look(who, run)
        rows: list[ReadRecord] = await self.reader.all_records(run)
        return timeline(run, (record for _, record in rows))

    async def _required_to_look(self, who: Principal, run: str) -> None:
        """Refuse a caller who may neither look nor has submitted this run. Raises `NotAllowed`."""
        by = ""
        if not may(who, "look") and may(who, "submit"):
            with suppress(UnknownRun):
                started = (await self.reader.history(run)).lifecycle.started
                by = "" if started is None else started.by
        if by and same_person(by, who.name):  # on record once an hour: a program may ask for its run each second
            await self.authenticator.require_somewhere(who, "submit")
        else:
            await self.authenticator.require(who, "look", PermissionScope(run))

    async def health(self, who: Principal, asking: HealthQuery) -> ReviewReport:
        """How people keep up, and what they found; it is about everything, so it takes a role everywhere."""
        await self.authenticator.require(who, "look", PermissionScope("the health of the inbox"))
        return await self._reports.recent(asking.days, self.now_ms)

    async def open_reviews(self, who: Principal) -> list[DrawnCall]:
        """The calls that wait for a shadow review, without what the caller may not see. Raises `NotAllowed`."""
        await self.authenticator.require_somewhere(who, "look")
        return [one for one in await open_reviews(self.reader.journal) if may(who, "look", one.tool)]

    async def drawn(self, who: Principal, operation: str) -> tuple[DrawnCall, Dossier]:
        """A call that was drawn for a shadow review, with all that is known. Raises `UsageError` and `NotAllowed`."""
        call = await self._drawn(who, operation, "look")
        return call, await dossier_of_call(self.reader, call)

    async def review(self, who: Principal, operation: str, word: ReviewWord, note: str) -> DrawnCall:
        """Record the caller's shadow review of a call. Raises `UsageError` for a second one, and `NotAllowed`."""
        call = await self._drawn(who, operation, "answer")
        await review(self.service.engine.journal, call, ShadowReview(word, who.name, note, who.via))
        return call

    async def _drawn(self, who: Principal, operation: str, permission: Permission) -> DrawnCall:
        """The call. One that the caller may not see is reported as missing: `UnknownRun`."""
        hidden = UnknownRun(f"no call {operation} waits for your review", next_step="open the list of shadow reviews")
        try:
            call = await drawn_call(self.reader.journal, operation)
        except UsageError:
            if may(who, "look"):
                raise
            raise hidden from None
        about = PermissionScope(operation, call.tool)
        if not may(who, "look", call.tool):
            with suppress(NotAllowed):
                await self.authenticator.require(who, "look", about)  # it is on record that they tried
            raise hidden
        await self.authenticator.require(who, permission, about)
        return call

    async def failures(self, who: Principal) -> WatchedFailures:
        """The silent failures and the proposed lessons. They are about everything, so they take a role everywhere."""
        await self.authenticator.require(who, "look", PermissionScope("the silent failures"))
        return await watched_failures(self.reader.journal)

    async def failures_to_see(self, who: Principal) -> int:
        """The number of silent failures and proposed lessons; 0 for a caller who may not see them."""
        if not may(who, "look"):
            return 0
        found = await watched_failures(self.reader.journal)
        return len(found.findings) + len(found.lessons)

    async def acknowledge(self, who: Principal, finding: str, newest_ms: int, why: str) -> None:
        """Record that the caller has seen a finding with this evidence. Raises `NotAllowed` and `UsageError`."""
        await self.authenticator.require(who, "answer", PermissionScope(f"the silent failure {finding}"))
        seen = Acknowledgement(finding, newest_ms, who.name, why)
        await acknowledge_shown(self.service.engine.journal, self.service.engine.outbox, seen, self.now_ms)

    async def decide_lesson(self, who: Principal, lesson: str, *, approved: bool, why: str) -> None:
        """Approve or decline a proposed lesson. Raises `NotAllowed` and `UsageError`."""
        await self.authenticator.require(who, "answer", PermissionScope(f"the lesson {lesson}"))
        await decide_lesson(self.service.engine, lesson, approved=approved, by=who.name, why=why)

    async def metrics(self, who: Principal) -> bytes:
        """The metrics of the journal, for Prometheus. They are about everything, so they take a role everywhere."""
        await self.authenticator.require(who, "look", PermissionScope("the metrics of the journal"))
        if self._measured is None:
            from beforehand.telemetry import Prometheus  # noqa: PLC0415 - it needs an extra

            self._measured = Prometheus()
        return await self._measured.scrape(self.service.engine)

    # --- submitting ------------------------------------------------------------------------------------------

    async def submit(self, who: Principal, asked: SubmitRequest) -> Submitted:
        """Store a run in a queue, in the caller's name. Raises as `Beforehand.submit` does, and `NotAllowed`.

        The role has to hold everywhere: a run calls any tool of its agent.
        """
        await self.authenticator.require(who, "submit", PermissionScope(f"runs of {asked.agent}"))
        found = self.service.engine.agents.get(asked.agent)
        if not isinstance(found, Agent) or is_system(asked.agent):
            raise ProblemResponse(
                HTTPStatus.NOT_FOUND,
                f"this server has no agent {asked.agent!r}",
                known="nothing was submitted",
                next_step="name its file when the server is started: beforehand serve FILE.py:AGENT",
            )
        if who.tenants and asked.tenant not in who.tenants:
            raise NotAllowed(
                f"{who.name} may not submit for the tenant {asked.tenant!r} with this token",
                known=f"it submits for {', '.join(who.tenants)}", next_step="name one of these as tenant",
            )  # fmt: skip
        try:
            budget = None if asked.budget is None else asked.budget.limits()
            if budget is not None and found.budget is not None:
                budget = found.budget.tightened(budget)
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
        except ParameterMismatch:
            if may(who, "look"):
                raise
            # The error quotes what that run was given, and a submitter may see no run of another account.
            raise ParameterMismatch("the key names another run", run="", next_step="give a key of your own") from None
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
        return await answer(self._voice(who), now, given, by=who.name, shown=shown)

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
        # To decline or change one's own proposal sends nothing; to say what happened takes the rights of the yes.
        yes = a.name_of(given) in _YES
        if yes and isinstance(now.subject, OperationState):
            await self._checked_proof(who, now, now.subject)
        await self.authenticator.require(who, NEEDS[a.name_of(given)], about, proposers=now.proposers if yes else ())
        if isinstance(given, a.HappenedTimes):  # it answers the others, too: each of them takes the same rights
            for step in now.alike:
                if step != now.step:
                    await self._judged(who, operation_id(now.run, step), a.HappenedAnswer(), "")
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


NEEDS: Final[dict[str, Permission]] = {
    "approve": "answer", "edit": "answer", "decline": "answer", "stand_in": "answer", "ask_back": "answer",
    "reply": "answer", "delegate": "hand", "snooze": "hand", "escalate": "hand", "resume": "order",
    "happened": "resolve", "did_not_happen": "resolve", "happened_times": "resolve",
    "retry_same_key": "resolve", "compensate": "resolve", "abandon": "resolve", "take_over": "resolve",
}  # fmt: skip
"""The permission that each answer requires."""
_YES: Final = frozenset(
    {"approve", "stand_in", "happened", "did_not_happen", "happened_times", "retry_same_key", "compensate"}
)
"""The answers that a person cannot give to their own proposal."""


def _may_give(who: Principal, name: str, now: LoadedItem, about: PermissionScope) -> bool:
    """True if this person may give this answer."""
    approvers = now.subject.approval.approvers if isinstance(now.subject, OperationState) else ()
    twice = name == "approve" and is_among(who.name, approvers)
    own = name in _YES and is_among(who.name, now.proposers)
    return not twice and not own and may(who, NEEDS[name], about.tool, about.queue)


class Aftermath(msgspec.Struct, frozen=True):
    """The state of the run after an answer, and the `following` item that waits for this person; empty for none."""

    then: str
    following: str


def _then(row: RunRow, found: Dossier, now_ms: int) -> str:
    if found.decided is not None and not found.decided.taken:
        return "Its run has not taken it yet: the process that drives it does, or a worker that has its code."
    if found.open:
        return "Another person has to answer, too."
    others = len([item for item, _ in items_in(row) if item != found.item])
    waits = f" waits for {others} other answer{'' if others == 1 else 's'}, and" if others else ""
    if row.status in {"completed", "stopped", "undone"}:
        return f"Its run is {row.status}."
    if row.owner is not None:
        return f"Its run{waits} is under way."
    if is_ready(row, now_ms):
        return f"Its run{waits} is {READY}."
    return f"Its run{waits} is {row.status}."
