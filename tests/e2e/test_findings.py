"""A person sees silent failures in a browser, acknowledges one, and decides about a lesson."""

from collections.abc import Awaitable, Callable
from typing import Any

from playwright.sync_api import expect

from beforehand import Beforehand
from beforehand.inspect.monitors.findings import record_findings
from beforehand.inspect.monitors.rules import SilentFailure
from beforehand.model.lessons import LessonEvidence, LessonProposed
from beforehand.people.lessons import list_lessons, propose_lesson
from tests.e2e.conftest import PHONE, Enter
from tests.e2e.served import Served

NEWEST = 1_767_225_500_000
FOUND = [
    SilentFailure(
        "refusals", "refund_desk", NEWEST, "7 of 9 writes failed in the last 1 d; before: 2 of 402",
        ["refund-17/refund#1 failed at 2026-01-01 09:12", "refund-21/refund#1 failed at 2026-01-01 09:40"],
        "beforehand why refund-17/refund#1", "5d41c7a0", NEWEST,
    ),
    SilentFailure(
        "missing effect", "mail_desk", NEWEST, "3 runs completed without send_mail; all 120 runs before had it",
        ["mail-7 completed without send_mail at 2026-01-01 10:02"], "beforehand show mail-7", "90c1aa02", NEWEST,
    ),
]  # fmt: skip


def watching(findings: list[SilentFailure]) -> Callable[[Beforehand], Awaitable[Any]]:
    async def note(app: Beforehand) -> None:
        an_hour_ago = app.engine.environment.clock.wall_ms() - 3_600_000
        await record_findings(app.engine.journal, app.engine.outbox, findings, an_hour_ago)
        evidence = (LessonEvidence("refund-17", ("the run is stopped: error",), NEWEST),)
        wanted = LessonProposed(
            "", "refund_desk", "check", "Look up the limit of the card before a refund.", evidence, "ann"
        )
        await propose_lesson(app.engine, wanted)

    return note


def test_a_finding_and_a_lesson_on_a_phone(desk: Served, enter: Enter):
    desk.do(watching(FOUND))
    page = enter(**PHONE)
    page.get_by_role("link", name="3 silent failures and lessons wait").tap()
    expect(page.get_by_role("heading", level=1)).to_have_text("Silent failures")
    assert page.evaluate("document.documentElement.scrollWidth") == 390, "nothing is wider than the phone"
    card = page.locator("section.card", has_text="7 of 9 writes failed")
    card.get_by_text("Acknowledge").first.tap()
    card.get_by_label("Reason").fill("the bank was down")
    card.get_by_role("button").tap()
    expect(page.get_by_text("7 of 9 writes failed")).to_have_count(0)
    expect(page.get_by_text("3 runs completed without send_mail")).to_be_visible()
    lesson = page.locator("section.card", has_text="Look up the limit")
    lesson.get_by_text("Approve").first.tap()
    lesson.get_by_role("button", name="Approve").tap()
    expect(page.get_by_text("Look up the limit")).to_have_count(0)
    (decided,) = desk.do(lambda app: list_lessons(app.engine.journal))
    assert (decided.state, decided.decided_by) == ("approved", "bea")
