"""Planted cases: they look like the others, whatever is answered sends nothing, and who answers is told."""

import re
from importlib import metadata
from typing import Any

import msgspec
import pytest

from beforehand import Beforehand, Key, Run, agent, tool
from beforehand.errors import BeforehandError, ContractError, RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.model.system import PLANTED
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from beforehand_console.reviews.alerts import DAY_MS
from beforehand_console.reviews.reader import read_reviews
from beforehand_console.reviews.seeded_cases import SeededCase
from beforehand_console.reviews.seeding import seed_cases
from tests.unit.engine.lab import Lab, virtual

BAD = SeededCase("refund", {"cents": 900_000}, why="ten times the price")


def desk_of(lab: Lab) -> Any:
    @tool(gate="cents > 5000", idempotency=Key.forever())
    async def refund(cents: int) -> str:
        lab.sent.append(f"refund {cents}")
        return f"paid {cents}"

    @agent(run_id="r-{number}", tools=[refund])
    async def desk(run: Run, number: int) -> str:
        return await refund(9000)

    return desk


async def asked(app: Any, desk: Any, *numbers: int) -> None:
    for number in numbers:
        with pytest.raises(RunSuspended):
            await app.run(desk, number)


async def planted_in(app: Any, desk: Any, case: SeededCase = BAD) -> str:
    await asked(app, desk, 17)
    done = await seed_cases(app.service.engine, [case], rate=1.0)
    [item] = done.items
    return item


@virtual
async def test_it_looks_like_a_real_question(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        item = await planted_in(app, desk)
        real, planted = sorted(await items(app.service.reader), key=lambda one: one.item == item)
        assert planted.item == item
        for field in set(real.__struct_fields__) - {"item", "run", "asks", "answers", "since_ms", "asked_ms"}:
            assert getattr(planted, field) == getattr(real, field), field
        assert planted.asks == real.asks.replace("9000", "900000")
        told = [[re.sub(r"--shown \w{12}", "--shown", line) for line in one.answers] for one in (planted, real)]
        assert [line.replace(planted.run, real.run) for line in told[0]] == told[1]
        assert planted.run.startswith("r-")
        shown, other = await dossier(app.service, item), await dossier(app.service, real.item)
        alike = set(shown.__struct_fields__) - {
            "item",
            "run",
            "asks",
            "arguments",
            "digest",
            "answers",
            "since_ms",
            "blocked",
        }
        for field in alike:
            assert getattr(shown, field) == getattr(other, field), field
        assert bytes(shown.arguments) == b'{"cents":900000}'


@pytest.mark.parametrize(
    ("given", "caught"),
    [(a.Approve(why="fine"), False), (a.Decline("too much"), True), (a.AskBack("why so much?"), True)],
)
@virtual
async def test_whatever_is_answered_nothing_is_sent_and_the_reviewer_is_told(lab: Lab, given: Any, caught: bool):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        item = await planted_in(app, desk)
        applied = await answer(app.service, item, given, by="bea")
        assert applied.note.startswith("This one was planted")
        assert ("you caught it" in applied.note) is caught
        assert "ten times the price" in applied.note
        run = item.split("/")[0]
        assert (await app.service.row(run)).status == "completed"
        with pytest.raises(BeforehandError):
            await app.resume(run)
        await lab.clock.sleep(60)
        [look] = [one for one in (await read_reviews(app.service.reader)).looks if one.kind == "planted"]
        assert (look.by, look.overridden, look.traits.tool) == ("bea", caught, "refund")
        with pytest.raises(UsageError):
            await answer(app.service, item, a.Approve(), by="carl")
    assert lab.sent == []


@virtual
async def test_an_edit_counts_as_caught(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        item = await planted_in(app, desk)
        applied = await app.service.edit(item, {"cents": 9000}, by="bea")
        assert "you caught it" in applied.note
    assert lab.sent == []


@virtual
async def test_a_worker_that_opens_later_sends_nothing_either(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        item = await planted_in(app, desk)
        await answer(app.service, item, a.Approve(), by="bea")
    async with lab.app(desk) as again:
        await lab.clock.sleep(600)
        assert (await again.service.row(item.split("/")[0])).status == "completed"
    assert lab.sent == []


@virtual
async def test_without_the_console_an_answer_is_recorded_and_applied_by_nobody(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        item = await planted_in(app, desk)
        run = item.split("/")[0]
        with monkeypatch.context() as patch:
            patch.setattr(metadata, "entry_points", lambda *, group: [])
            applied = await answer(app.service, item, a.Approve(), by="bea")
            assert (applied.at_once, applied.lacks) == (False, f"{PLANTED}desk")
            with pytest.raises(BeforehandError):
                await app.resume(run)
            await lab.clock.sleep(600)
            assert (await app.service.row(run)).status == "suspended"
        assert lab.of(run, r.ApprovalGranted) + lab.of(run, r.CommandApplied) == [], "the engine applies nothing to it"
        lab.clock.skew_ms += 4 * DAY_MS
        assert (await seed_cases(app.service.engine, [BAD], rate=0.0)).withdrawn == ()
        [look] = [one for one in (await read_reviews(app.service.reader)).looks if one.kind == "planted"]
        assert (look.by, look.overridden) == ("bea", False), "the answer that was recorded counts"
    assert lab.sent == []


@virtual
async def test_no_code_can_be_the_agent_of_a_planted_run(lab: Lab):
    @agent(name=f"{PLANTED}desk", run_id="x-{number}")
    async def desk(run: Run, number: int) -> str:
        return ""

    with pytest.raises(ContractError, match="has a name that the runtime reserves"):
        Beforehand("never.db", agents=[desk])


@virtual
async def test_the_rate_counts_what_was_asked_and_planted(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await asked(app, desk, *range(10))
        first = await seed_cases(app.service.engine, [BAD, SeededCase("refund", {"cents": 7}, why="x")], rate=0.3)
        assert len(first.items) in {3, 4}
        again = await seed_cases(app.service.engine, [BAD], rate=0.3)
        assert len(again.items) <= 1, "what was planted counts"
        assert len({*first.items, *again.items}) == len(first.items) + len(again.items)


@virtual
async def test_what_nobody_answers_is_withdrawn_and_no_look(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        item = await planted_in(app, desk)
    lab.clock.skew_ms += 4 * DAY_MS
    async with lab.app(desk) as app:
        done = await seed_cases(app.service.engine, [BAD], rate=0.0)
        assert done.withdrawn == (item.split("/")[0],)
        assert [one.run for one in await items(app.service.reader)] == ["r-17"]
        assert (await read_reviews(app.service.reader)).looks == []


@virtual
async def test_what_people_are_never_asked_about_cannot_be_planted(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await asked(app, desk, 1)
        with pytest.raises(UsageError, match="no question about mail was asked"):
            await seed_cases(app.service.engine, [SeededCase("mail", {}, why="x")])
        with pytest.raises(UsageError, match="no cases"):
            await seed_cases(app.service.engine, [])
        with pytest.raises(UsageError, match="run r-1 exists already"):
            await seed_cases(app.service.engine, [SeededCase("refund", {}, why="x", run="r-1")], rate=1.0)


@pytest.mark.parametrize(("seen", "shown"), [("", ""), ("a mail of ann", "a mail of ann")])
@virtual
async def test_what_a_model_read_is_that_of_a_real_question_or_of_the_case(lab: Lab, seen: str, shown: str):
    @tool(gate="true", idempotency=Key.forever())
    async def refund(cents: int) -> str:
        return "paid"

    async def judge(number: int) -> int:
        return 9000

    @agent(run_id="r-{number}", tools=[refund])
    async def desk(run: Run, number: int) -> str:
        return await refund(await run.decide(judge, number))

    async with lab.app(desk) as app:
        item = await planted_in(app, desk, msgspec.structs.replace(BAD, seen=seen))
        (real,) = (await dossier(app.service, "r-17/refund#1")).thoughts
        (planted,) = (await dossier(app.service, item)).thoughts
        assert planted.seen == (shown if seen else real.seen)


@virtual
async def test_one_that_is_over_is_withdrawn_like_a_real_question_ends(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk, answer_within_ms=3_600_000, poll_ms=7_200_000, recover_every_ms=7_200_000) as app:
        item = await planted_in(app, desk)
        assert (await seed_cases(app.service.engine, [BAD], rate=0.0)).withdrawn == ()
        await lab.pass_time(hours=1)
        assert (await seed_cases(app.service.engine, [BAD], rate=0.0)).withdrawn == (item.split("/")[0],)


@pytest.mark.parametrize("at_hand", [True, False])
@virtual
async def test_it_has_a_title_where_real_questions_have_one(lab: Lab, at_hand: bool):
    @tool(gate="cents > 5000", title="refund {cents} cents")
    async def refund(cents: int) -> str:
        return f"paid {cents}"

    @agent(run_id="r-{number}", tools=[refund])
    async def desk(run: Run, number: int) -> str:
        return await refund(9000)

    @agent(run_id="o-{number}")
    async def other(run: Run, number: int) -> None: ...

    async with lab.app(desk) as app:
        await asked(app, desk, 17)
    async with lab.app(desk if at_hand else other) as app:
        case = BAD
        if not at_hand:
            with pytest.raises(UsageError, match='Next: add "title" to the case'):
                await seed_cases(app.service.engine, [BAD], rate=1.0)
            case = msgspec.structs.replace(BAD, title="refund 900000 cents")
        (item,) = (await seed_cases(app.service.engine, [case], rate=1.0)).items
        real, planted = sorted(await items(app.service.reader), key=lambda one: one.item == item)
        assert planted.asks == real.asks.replace("9000", "900000")
        assert (await dossier(app.service, item)).title == "refund 900000 cents"
