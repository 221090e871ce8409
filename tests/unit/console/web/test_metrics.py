"""`/metrics` of the console: the gauges of the journal, for a token whose role holds everywhere, and for no stranger."""

from beforehand_console.auth.authorize import Grant
from tests.unit.console.web.stand import standing
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_a_token_with_a_role_everywhere_reads_the_metrics(lab: Lab):
    async with standing(lab) as stand:
        client = await stand.client("cid", Grant("viewer"))
        page = await client.get("/metrics")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'beforehand_people_waiting{kind="approval"} 2.0' in page.text
        assert "beforehand_runs_driven" not in page.text.replace("# HELP", ""), "the console drives no runs"
        assert "refund-ann" not in page.text


@virtual
async def test_strangers_and_roles_of_one_place_do_not(lab: Lab):
    async with standing(lab) as stand:
        narrow = await stand.client("cid", Grant("admin", ("refund",)))
        assert (await narrow.get("/metrics")).status_code == 403
        stranger = stand.stranger()
        refused = await stranger.get("/metrics")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await narrow.post("/metrics")).status_code in {403, 405}
