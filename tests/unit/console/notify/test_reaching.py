"""Notices to people: told once, reminded, gathered, quiet once answered, and honest about what cannot be known."""

import json
import os
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from beforehand import Beforehand, Run, Secret, agent, tool
from beforehand.errors import ReplayDiverged, RunSuspended
from beforehand.inspect.monitors.findings import AGAIN_MS, Acknowledgement, acknowledge, record_findings
from beforehand.inspect.monitors.rules import SilentFailure
from beforehand.people.answering import answer
from beforehand.people.answers import Abandon
from beforehand.people.assignments import Handing, handing_post
from beforehand.people.items import items
from beforehand.policies import Gate
from beforehand_console import Mail, Only, Pace, Reach, Slack, Teams
from tests.unit.console.notify.offices import HANGS_UP, Office, plain, post_office
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt
from tests.unit.webhooks.receiver import receiving

CALM: dict[str, Any] = {"recover": True, "recover_every_ms": 60_000, "poll_ms": 60_000}  # looks once a minute
KEY = Secret.of(os.urandom(32).hex(), name="link-key")


@tool(gate=Gate("true", within=timedelta(hours=8)))
async def refund(order: str, cents: int) -> str:
    return "done"


@agent(run_id="t-{order}", tools=[refund])
async def desk(run: Run, order: str) -> str:
    return await refund(order, 5000)


def mail(office: Office, **settings: Any) -> Mail:
    settings = {"to": "ann@example.com", "name": "ann", **settings}
    return Mail(sender="desk@example.com", server=office.server, tls="none", **settings)


async def ask(app: Beforehand, *orders: str) -> None:
    for order in orders:
        with pytest.raises(RunSuspended):
            await app.run(desk, order)


@virtual
async def test_whoever_is_to_answer_is_told_once_with_the_facts_first(lab: Lab):
    with post_office() as office:
        async with lab.app(desk, **CALM, reach=[mail(office)]) as app:
            await ask(app, "A-17")
            await lab.pass_time(minutes=30)
    (message,) = office.box
    assert message["Subject"] == "Beforehand: approval t-A-17/refund#1"
    assert (message["To"], message["From"]) == ("ann@example.com", "desk@example.com")
    text = plain(message)
    assert "Tool: refund" in text
    assert '"cents":5000' in text
    assert "beforehand answer t-A-17/refund#1 yes --shown " in text
    assert "If nobody answers: it is refused, and nothing is sent" in text
    assert "the contract asks for a person" in text
    assert text.index("Arguments:") < text.index("may refund"), "the facts come before the question"


@virtual
async def test_a_reminder_comes_before_the_deadline_and_not_once_it_is_answered(lab: Lab):
    with post_office() as office:
        async with lab.app(desk, **CALM, reach=[mail(office)]) as app:
            await ask(app, "A-17", "B-18")
            await lab.pass_time(hours=6)
            assert len(office.box) == 2
            await app.service.approve("t-B-18/refund#1", by="bea")
            await lab.pass_time(hours=3)
    reminders = [message["Subject"] for message in office.box[2:] if "approval" in message["Subject"]]
    assert reminders == ["Beforehand: Reminder: approval t-A-17/refund#1"]


@virtual
async def test_people_are_told_of_a_run_that_cannot_go_on_and_not_once_somebody_said_how(lab: Lab):
    @agent(run_id="x-{name}", tools=[refund])
    async def changing(run: Run, name: str) -> str:
        return await refund("A-17", 2 if lab.changed else 1)

    with post_office() as office:
        async with lab.app(changing, **CALM, reach=[mail(office, only=Only(kinds=("handoff",)))]) as app:
            for name in ("ann", "bob"):
                lab.changed = False
                with pytest.raises(RunSuspended):
                    await app.run(changing, name)
                lab.changed = True
                with pytest.raises(ReplayDiverged):
                    await app.resume(f"x-{name}")
            await answer(app.service, "x-bob", Abandon(), by="bea")
            await lab.pass_time(minutes=30)
    (message,) = office.box
    assert message["Subject"] == "Beforehand: run to take over x-ann"
    text = plain(message)
    assert "it cannot go on: ReplayDiverged" in text
    assert "beforehand resume x-ann" in text
    assert "If nobody answers: it goes on waiting, first in the list; nothing more is sent" in text


@virtual
async def test_many_questions_at_once_are_one_message(lab: Lab):
    with post_office() as office:
        async with lab.app(desk, **CALM, reach=[mail(office)]) as app:
            await ask(app, *(f"N-{number}" for number in range(47)))
            await lab.pass_time(minutes=3)
    (message,) = office.box
    assert message["Subject"] == "Beforehand: 47 things wait for an answer"
    assert plain(message).count("Tool: refund") == 47


@virtual
async def test_a_trickle_beyond_the_pace_is_gathered(lab: Lab):
    """Never more than its pace of single ones and one list within a window."""
    with post_office() as office:
        async with lab.app(desk, **CALM, reach=[mail(office, pace=Pace(most=3))]) as app:
            for number in range(10):
                await ask(app, f"N-{number}")
                await lab.pass_time(minutes=1)
            await lab.pass_time(minutes=30)
    subjects = [message["Subject"].partition(":")[2].strip() for message in office.box]
    assert subjects[:4] == [*(f"approval t-N-{number}/refund#1" for number in range(3)), "4 things wait for an answer"]
    assert sorted(subjects[4:]) == [f"approval t-N-{number}/refund#1" for number in range(7, 10)]


@virtual
async def test_nobody_answered_so_the_next_rung_of_the_ladder_is_told(lab: Lab):
    with post_office() as office:
        lead = mail(office, to="lea@example.com", name="lead", pace=Pace(after=timedelta(hours=4)))
        async with lab.app(desk, **CALM, reach=[mail(office), lead]) as app:
            await ask(app, "A-17", "B-18")
            await lab.pass_time(hours=3)
            await app.service.decline("t-B-18/refund#1", by="bea")
            await lab.pass_time(hours=2)
    told = [message["Subject"] for message in office.box if message["To"] == "lea@example.com"]
    assert told == ["Beforehand: Still unanswered: approval t-A-17/refund#1"]


@virtual
async def test_a_channel_is_told_only_what_it_is_for(lab: Lab):
    with post_office() as office:
        reach = [
            mail(office, name="questions", only=Only(kinds=("question",))),
            mail(office, name="refunds", only=Only(kinds=("approval",), tools=("refund",))),
            mail(office, name="bookings", only=Only(tools=("book",))),
            mail(office, name="leads", only=Only(queues=("leads",))),
            mail(office, name="soon", only=Only(due_within=timedelta(hours=2))),
        ]
        async with lab.app(desk, **CALM, reach=reach) as app:
            await ask(app, "A-17")
            await lab.pass_time(hours=1)
            assert len(office.box) == 1
            await app.engine.journal.commit(
                handing_post("t-A-17", "refund#1", Handing("escalate", "bea", queue="leads"))
            )
            await lab.pass_time(hours=1)
            assert len(office.box) == 3, "the queue it went to is told, and who is there for what is urgent"
            told = {entry.stream for entry in await app.engine.journal.entries("notices/")}
    assert told == {"notices/refunds", "notices/leads", "notices/soon"}


@virtual
async def test_what_is_asked_again_after_an_approval_ended_is_news(lab: Lab):
    with post_office() as office:
        async with lab.app(desk, reach=[mail(office)]) as app:
            await ask(app, "A-17")
            await app.run_housekeeping()
            await app.service.approve("t-A-17/refund#1", by="bea", lasts=timedelta(minutes=5))
            await lab.pass_time(minutes=10)
            await ask(app, "A-17")
            await app.run_housekeeping()
            notices = [row.run for row in await app.engine.journal.runs() if row.agent == "beforehand:notice"]
            for run in notices:
                await app.drive(run)
    assert notices == ["notice-ann-000001", "notice-ann-000002"]
    assert len(office.box) == 1, "the first asking was answered before its notice could be sent"


# --- what is proven, and what is not -----------------------------------------------------------------------


@virtual
async def test_a_server_that_says_later_is_asked_again_with_the_same_id(lab: Lab):
    with post_office() as office:
        office.answers = ["451 4.7.1 greylisted, come back later", "451 4.7.1 greylisted", "250 OK"]
        office.rcpt = ["450 4.2.0 greylisted", "250 OK"]
        async with lab.app(desk, **CALM, reach=[mail(office)]) as app:
            await ask(app, "A-17")
            await lab.pass_time(hours=5)
            _, state = await app.service.operation("notice-ann-000001/notice:ann#1")
    assert office.tried == 3
    assert len(office.box) == 1
    assert [attempt.end.kind for attempt in state.attempts if attempt.end] == ["not_sent"] * 3 + ["returned"]


@virtual
async def test_a_server_that_refuses_is_not_asked_again(lab: Lab):
    with post_office() as office:
        office.rcpt = ["550 5.1.1 no such mailbox here"]
        async with lab.app(desk, **CALM, reach=[mail(office)]) as app:
            await ask(app, "A-17")
            await lab.pass_time(hours=1)
            row = await app.service.row("notice-ann-000001")
    assert (office.tried, row.status) == (0, "stopped")
    assert "the mail server answered 550" in row.reason


@virtual
async def test_where_the_answer_was_lost_nobody_can_tell_and_nothing_is_sent_on_a_guess(lab: Lab):
    with post_office() as office:
        office.answers = [HANGS_UP]
        async with lab.app(desk, **CALM, reach=[mail(office)]) as app:
            await ask(app, "A-17")
            await lab.pass_time(minutes=10)
            _, state = await app.service.operation("notice-ann-000001/notice:ann#1")
            assert (len(office.box), state.phase) == (1, "unknown")
            assert [item.item for item in await items(app.service.reader)] == ["t-A-17/refund#1"]
            office.answers = ["250 OK"]
            await lab.pass_time(minutes=30)
    subject = "approval t-A-17/refund#1"
    assert [message["Subject"] for message in office.box] == [
        f"Beforehand: {word}{subject}" for word in ("", "Perhaps once more: ")
    ]
    assert office.box[0]["Message-ID"] != office.box[1]["Message-ID"], "another notice, and not the same sent again"


@virtual
async def test_a_server_that_never_answers_is_not_sent_notices_without_end(lab: Lab):
    with post_office() as office:
        office.answers = [HANGS_UP]
        async with lab.app(desk, **CALM, reach=[mail(office, pace=Pace(remind_before=timedelta(0)))]) as app:
            await ask(app, "A-17")
            await lab.pass_time(hours=7)
    assert len(office.box) == 3


@virtual
async def test_a_notice_that_waits_for_its_server_is_not_sent_once_it_is_answered(lab: Lab):
    with post_office() as office:
        office.answers = ["451 later", "451 later", "250 OK"]
        async with lab.app(desk, **CALM, reach=[mail(office)]) as app:
            await ask(app, "A-17")
            await lab.pass_time(seconds=90)
            assert office.tried >= 1
            await app.service.decline("t-A-17/refund#1", by="bea")
            await lab.pass_time(hours=5)
            row = await app.service.row("notice-ann-000001")
    assert [message["Subject"] for message in office.box if "approval" in message["Subject"]] == []
    assert row.status == "completed"


@virtual
async def test_two_processes_that_look_at_once_send_each_message_once(lab: Lab):
    with post_office() as office:
        async with (
            lab.app(desk, **CALM, reach=[mail(office)]) as app,
            lab.app(desk, **CALM, reach=[mail(office)]),
            lab.app(desk, **CALM, reach=[mail(office)]),
        ):
            await ask(app, "A-17", "B-18", "C-19")
            await lab.pass_time(hours=1)
    assert sorted(message["Subject"] for message in office.box) == [
        f"Beforehand: approval t-{order}/refund#1" for order in ("A-17", "B-18", "C-19")
    ]


@virtual
async def test_a_notice_survives_whoever_dies_on_the_way(lab: Lab):
    """Killed after it was decided upon, after its run was begun, and after the server took it."""
    with post_office() as office:
        first = lab.make(desk, reach=[mail(office)])
        process = lab.processes[-1]
        await first.open()
        await ask(first, "A-17")
        await first.run_housekeeping()
        await lab.bury(first, process)
        assert office.box == []
        crash = DiesAt("after_send", 1)
        second = lab.make(desk, reach=[mail(office)], crash=crash, **CALM)
        process = crash.process = lab.processes[-1]
        await second.open()
        await lab.pass_time(minutes=3)
        await lab.bury(second, process)
        assert len(office.box) == 1
        async with lab.app(desk, **CALM, reach=[mail(office)]) as app:
            await lab.pass_time(minutes=10)
            _, state = await app.service.operation("notice-ann-000001/notice:ann#1")
    assert (len(office.box), state.phase) == (1, "unknown")


# --- chats ---------------------------------------------------------------------------------------------


@virtual
async def test_slack_and_teams_are_told_in_the_forms_that_they_document(lab: Lab):
    with receiving() as slack, receiving() as teams:
        taken: dict[str, list[Any]] = {"slack": [], "teams": []}
        slack.take = lambda _headers, body: (taken["slack"].append(json.loads(body)), 200)[1]  # type: ignore[method-assign]  # a receiver of its own kind
        teams.take = lambda _headers, body: (taken["teams"].append(json.loads(body)), 202)[1]  # type: ignore[method-assign]  # as above
        reach = Reach((Slack(slack.url), Teams(teams.url)), base_url="https://desk.example.com", link_key=KEY)
        async with lab.app(desk, **CALM, private_webhooks=True, reach=reach) as app:
            await ask(app, "A-17")
            await lab.pass_time(minutes=3)
    (said,), (message,) = taken["slack"], taken["teams"]
    assert said["text"] == "Beforehand: approval t-A-17/refund#1"
    assert (said["unfurl_links"], said["unfurl_media"]) == (False, False)
    assert said["blocks"][0] == {
        "type": "header", "text": {"type": "plain_text", "text": "Beforehand: approval t-A-17/refund#1", "emoji": False},
    }  # fmt: skip
    (marked,) = [block["text"] for block in said["blocks"] if block.get("text", {}).get("type") == "mrkdwn"]
    assert marked["verbatim"]
    assert marked["text"].startswith("<https://desk.example.com/links/")
    assert message["type"] == "message"
    (attachment,) = message["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert attachment["content"]["type"] == "AdaptiveCard"
    assert {block["type"] for block in attachment["content"]["body"]} == {"RichTextBlock"}
    (action,) = attachment["content"]["actions"]
    assert action["type"] == "Action.OpenUrl"
    assert action["url"].startswith("https://desk.example.com/links/")


@virtual
async def test_a_chat_that_leads_inside_is_not_told_unless_that_is_allowed(lab: Lab):
    with receiving() as slack:
        async with lab.app(desk, **CALM, reach=[Slack(slack.url)]) as app:
            await ask(app, "A-17")
            await lab.pass_time(hours=1)
            _, state = await app.service.operation("notice-slack-000001/notice:slack#1")
    assert slack.came == []
    assert state.attempts[0].end is not None
    assert "is private or unencrypted" in state.attempts[0].end.why


@pytest.mark.parametrize(
    ("status", "phase"), [(404, "failed"), (410, "failed"), (500, "unknown"), (302, "unknown"), (-1, "unknown")]
)
def test_what_a_chat_answers_proves_what_it_proves(status: int, phase: str):
    @virtual
    async def told(lab: Lab):
        with receiving() as slack:
            slack.take = lambda headers, _body: (slack.came.append((headers, b"")), status)[1]  # type: ignore[method-assign]  # a receiver of its own kind
            async with lab.app(desk, **CALM, private_webhooks=True, reach=[Slack(slack.url)]) as app:
                await ask(app, "A-17")
                await lab.pass_time(minutes=10)
                _, state = await app.service.operation("notice-slack-000001/notice:slack#1")
        assert (state.phase, len(slack.came)) == (phase, 1)

    told()


@virtual
async def test_a_finding_is_told_once_and_again_when_its_acknowledgement_has_ended(lab: Lab):
    found = SilentFailure(
        "cost",
        "desk",
        1,
        "1 run far above the past: see https://evil.example",
        ["t-1 used 9 tokens"],
        "beforehand show t-1",
        "5d41c7a0",
        1,
    )

    async def look(*findings: SilentFailure) -> None:
        await record_findings(app.engine.journal, app.engine.outbox, findings, lab.clock.wall_ms())

    async def seen(until_ms: int = 0) -> None:
        one = Acknowledgement(found.id, 2, "ann", until_ms=until_ms)
        await acknowledge(app.engine.journal, app.engine.outbox, one, lab.clock.wall_ms())

    with post_office() as office:
        others = mail(office, to="bea@example.com", name="bea", only=Only(kinds=("approval",)))
        async with lab.app(desk, **CALM, reach=[mail(office), others]) as app:
            await look(found)
            await lab.pass_time(hours=1)
            (message,) = office.box
            more = msgspec.structs.replace(found, at_ms=1 + AGAIN_MS, newest_ms=2)
            await look(more)
            await lab.pass_time(hours=1)
            assert len(office.box) == 1, "more evidence is no new message"
            until = lab.clock.wall_ms() + 3_600_000
            await seen(until)
            for minutes, messages in ((50, 1), (10, 1), (20, 2)):
                await look(more)
                await lab.pass_time(minutes=minutes)
                assert len(office.box) == messages
            await seen()
            await look(more)
            await lab.pass_time(minutes=20)
            await look(msgspec.structs.replace(found, newest_ms=3))
            await lab.pass_time(minutes=20)
            assert len(office.box) == 3, "evidence after the acknowledgement is"
            await look()
            await lab.pass_time(hours=1)
    assert [one["To"] for one in office.box] == ["ann@example.com"] * 3
    assert message["Subject"] == "Beforehand: silent failure, finding 5d41c7a0"
    text = plain(message)
    assert "Rule: cost" in text
    assert "Look: beforehand show t-1" in text
    assert "beforehand monitors ack 5d41c7a0" in text
    assert "Digest" not in text
    assert "https://evil" not in text
