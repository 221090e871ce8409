"""The page and the call that say whether people keep up: the same figures as in the terminal, alarms first."""

import msgspec

from beforehand_console.auth.authorize import Grant
from beforehand_console.reviews.report import ReviewReport, workload
from tests.unit.console.web.stand import Stand, standing
from tests.unit.engine.lab import DAYS, Lab, virtual


async def busy(stand: Stand) -> None:
    """One item is approved and one declined; the rest gets old."""
    await stand.app.service.approve("refund-ann/refund#1", by="bea")
    await stand.app.resume("refund-ann")
    await stand.app.service.decline("mail-ann/send_mail#1", by="cid")


@virtual
async def test_the_call_gives_what_the_terminal_shows(lab: Lab):
    async with standing(lab, **DAYS) as stand, await stand.client("bea") as client:
        await busy(stand)
        await lab.pass_time(days=2)
        got = msgspec.json.decode((await client.get("/api/v1/health")).content, type=ReviewReport)
        assert got.watch == await workload(stand.app.service.reader, stand.authenticator.now_ms)
        assert {one.name for one in got.watch.alarms} >= {"age", "overdue"}
        assert [one.name for one in got.figures.by_tool if one.overrides.hits == 0] == ["refund"]


@virtual
async def test_the_page_has_the_alarms_first_and_every_rate_with_its_interval(lab: Lab):
    async with standing(lab, **DAYS) as stand, await stand.client("bea") as client:
        await busy(stand)
        await lab.pass_time(days=2)
        page = await client.get("/health?days=30")
        assert page.status_code == 200
        assert page.text.index("the oldest has waited for 48 hours") < page.text.index("median decision")
        assert '<a href="/health" aria-current="page">Health</a>' in page.text
        assert '<a href="/health?days=30" aria-current="true">30 days</a>' in page.text
        assert page.text.count('<svg class="interval"') >= 8
        assert "style=" not in page.text, "the policy of the page would drop it"


@virtual
async def test_where_nothing_was_asked_nothing_rings(lab: Lab):
    async with standing(lab, begun=()) as stand, await stand.client("bea") as client:
        page = (await client.get("/health")).text
        assert "Nothing is waiting. There are no alarms." in page
        assert "nan" not in page


@virtual
async def test_a_report_is_kept_for_a_moment_and_made_anew_after_it(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        assert (await client.get("/api/v1/health")).json()["watch"]["health"]["answered"] == 0
        await stand.app.service.approve("refund-ann/refund#1", by="cid")
        await stand.app.resume("refund-ann")
        assert (await client.get("/api/v1/health")).json()["watch"]["health"]["answered"] == 0
        assert (await client.get("/api/v1/health?days=1")).json()["watch"]["health"]["answered"] == 1
        await lab.pass_time(seconds=31)
        assert (await client.get("/api/v1/health")).json()["watch"]["health"]["answered"] == 1


@virtual
async def test_it_is_about_everything_and_takes_a_role_everywhere(lab: Lab):
    async with standing(lab) as stand:
        narrow = await stand.client("cid", Grant("operator", ("refund",)))
        assert (await narrow.get("/health")).status_code == 403
        assert (await narrow.get("/api/v1/health")).status_code == 403
        bea = await stand.client("bea")
        for wrong in ("days=2", "days=x", "day=7"):
            assert (await bea.get(f"/api/v1/health?{wrong}")).status_code == 422, wrong
            assert (await bea.get(f"/health?{wrong}")).status_code == 400, wrong
