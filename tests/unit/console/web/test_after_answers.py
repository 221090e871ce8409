"""What the page says once an item has its answer, which answers it offers before, and which links it shows to whom."""

import re
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest

from beforehand import Operation, Rejected, Run, agent, tool
from beforehand.control.command_sink import CollectingSink
from beforehand.errors import ReplayDiverged, RunSuspended
from beforehand.journal.port import Posts
from beforehand.people import Policy, Rule
from beforehand.people import answers as a
from beforehand_console.auth.authorize import Grant
from beforehand_console.web.use_cases import NEEDS
from tests.unit.console.web.stand import desk_of, standing
from tests.unit.console.web.test_contradicted import bounce
from tests.unit.console.web.test_contradicted import desk as contradicting
from tests.unit.console.web.test_handed_over import lost
from tests.unit.console.web.test_local import linked
from tests.unit.console.web.test_pages import REFUND, fill
from tests.unit.engine.lab import Lab, virtual

FOLLOWS = "is ready to continue as soon as a worker takes it up"


def told(page: str) -> str:
    """What the page says about the answer, as text; empty where it says nothing."""
    found = re.search(r'aria-label="The answer">(.*?)</section>', page, re.DOTALL)
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", found[1]).split())) if found else ""


def offered(page: str) -> list[str]:
    return re.findall(r'name="type" value="(\w+)"', page)


@virtual
async def test_the_page_says_who_decided_what_follows_and_which_item_is_next(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        assert told((await client.get(REFUND)).text) == ""
        page = (await fill(client, REFUND, "approve", hours="4", why="seen")).headers["location"]
        after = (await client.get(page)).text
        assert told(after).startswith("bea approves it: seen just now Its run " + FOLLOWS)
        run, _, story = (await client.get("/runs/refund-ann")).text.partition('<ol class="story">')
        assert "It " + FOLLOWS in run, "and it no longer asks"
        assert "Open it in the inbox" not in story
        assert "be sent?" not in run
        assert offered(after) == []
        following = re.findall(r'rel="next" href="([^"]+)"', after)
        first = re.findall(r'<li class="row.*?href="([^"]+)"', (await client.get("/inbox")).text, re.DOTALL)[0]
        assert following == [first]
        assert REFUND not in following
        await stand.app.resume("refund-ann")
        assert "Its run is completed." in told((await client.get(REFUND)).text)


@virtual
async def test_nobody_is_sent_to_an_item_of_another_tool_or_person(lab: Lab):
    async with standing(lab, begun=("ann", "ben")) as stand, await stand.client("bea") as boss:
        cid = await stand.client("cid", Grant("answerer", ("refund",)))
        await fill(boss, "/inbox/refund-ben/refund%231", "delegate", to="bea")
        await fill(cid, REFUND, "decline", why="too much")
        said = told((await cid.get(REFUND)).text)
        assert said.startswith("cid declines it: too much")
        assert said.endswith("No other item waits for you.")


@virtual
async def test_every_kind_of_item_says_who_answered_it(lab: Lab):
    async with standing(lab, agents=[*desk_of(lab), lost(lab)]) as stand, await stand.client("bea") as client:
        lab.changed = True
        with pytest.raises(ReplayDiverged):
            await stand.app.resume("lost-ann")
        lab.changed = False
        for path, form, says in (
            ("trip-ann/ask%231", {"kind": "reply", "value": "Rome"}, "bea answers Rome"),
            ("stock-ann/restock%231", {"kind": "did_not_happen", "then": "give_up", "evidence": "the shelf"},
             "bea says that it did not happen: the shelf"),
            ("lost-ann", {"kind": "resume", "why": "mended"}, "bea resumes it: mended"),
        ):  # fmt: skip
            assert (await fill(client, f"/inbox/{path}", **form)).status_code == 303, path
            assert told((await client.get(f"/inbox/{path}")).text).startswith(f"{says} just now"), path


@virtual
async def test_an_answer_that_its_run_has_not_taken_is_shown_and_not_asked_for_again(lab: Lab):
    """Its giver has died before the run had it, or another process drives the run."""
    async with standing(lab) as stand, await stand.client("bea") as client:
        words = CollectingSink(stand.lab.clock.wall_ms())
        await stand.app.service.over(words).approve("refund-ann/refund#1", by="dan", why="seen")
        await stand.app.engine.journal.commit(Posts(tuple(words.posts)))
        page = (await client.get(REFUND)).text
        assert told(page).startswith("dan approves it: seen just now Its run has not taken it yet")
        assert offered(page) == []
        assert "beforehand answer" not in page


@virtual
async def test_of_two_people_who_have_to_say_yes_the_first_is_told_that_another_one_has_to(lab: Lab):
    policy = Policy("two", rules=(Rule("two", "tool == 'refund'", "ask", people=2),))
    async with standing(lab, policy=policy) as stand, await stand.client("bea") as client:
        await fill(client, REFUND, "approve", hours="4")
        page = (await client.get(REFUND)).text
        assert "Another person has to answer, too." in told(page)
        assert "approve" not in offered(page)
        assert "decline" in offered(page)


def test_every_answer_has_its_permission():
    assert set(NEEDS) == {str(one.__struct_config__.tag) for one in a.Answer.__args__}


@virtual
async def test_what_a_person_may_not_give_is_not_offered(lab: Lab):
    agents = desk_of(lab)
    async with standing(lab, begun=()) as stand:
        for one in agents:
            with pytest.raises(RunSuspended):
                await stand.app.run(one, "ann", by="bea")
        bea, viewer = await stand.client("bea"), await stand.client("vic", Grant("viewer"))
        answerer = await stand.client("cid", Grant("answerer"))
        assert offered((await bea.get(REFUND)).text) == [
            "decline",
            "edit",
            "ask_back",
            "delegate",
            "snooze",
            "escalate",
        ]
        assert offered((await answerer.get("/inbox/stock-ann/restock%231")).text) == ["delegate", "snooze", "escalate"]
        looked = (await viewer.get(REFUND)).text
        assert offered(looked) == []
        assert "your role gives no answer" in looked
        assert "beforehand answer" not in looked
        assert (await viewer.get(f"/api/v1/items/{quote('refund-ann/refund#1')}")).json()["fits"] == []


@virtual
async def test_compensation_is_offered_inside_a_transaction_only(lab: Lab):
    """Outside one it is refused, as an effect that was never sent cannot have happened."""
    async with standing(lab) as stand, await stand.client("bea") as client:
        kinds = offered((await client.get("/inbox/stock-ann/restock%231")).text)
        assert kinds == ["happened", "did_not_happen", "abandon", "delegate", "snooze", "escalate"]
        refused = await fill(client, "/inbox/stock-ann/restock%231", "compensate")
        assert (refused.status_code, "is in no transaction" in refused.text) == (409, True)


def stuck(lab: Lab) -> Any:
    """An agent whose transaction cannot end: its compensation is refused until `lab.changed`."""

    @tool
    async def book(city: str) -> str:
        return city

    @book.compensate(restores=True)
    async def cancel(operation: Operation[str], city: str) -> None:
        if not lab.changed:
            raise Rejected("the office is closed")
        lab.sent.append(f"cancel {city}")

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            await book("Rome")
            raise ValueError("no seat")

    return desk


@virtual
async def test_a_parked_transaction_offers_what_it_takes(lab: Lab):
    """The outcomes of its operations are stated one by one; it is tried again, or left as it is."""
    async with standing(lab, agents=[stuck(lab)]) as stand, await stand.client("bea") as client:
        page = await client.get("/inbox/trip-ann/trip")
        assert offered(page.text) == ["did_not_happen", "abandon", "delegate", "snooze", "escalate"]
        assert "Try it again" in page.text
        assert (
            await fill(client, "/inbox/trip-ann/trip", "did_not_happen", then="retry", evidence="open")
        ).status_code == 303
        assert told((await client.get("/inbox/trip-ann/trip")).text).startswith(
            "bea has what is stuck tried again in trip: open just now"
        )


@pytest.mark.parametrize("word", ["happened", "did_not_happen"])
@virtual
async def test_a_contradicted_outcome_takes_the_answers_of_its_forms(lab: Lab, word: str):
    pays = contradicting(lab, compensates=False)
    async with standing(lab, agents=[pays]) as stand, await stand.client("bea") as client:
        await bounce(stand, pays)
        page = await client.get("/inbox/pay-ann/pay%231")
        form = re.search(rf'name="type" value="{word}".*?</form>', page.text, re.DOTALL)
        assert form is not None
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form[0]))
        assert (await fill(client, "/inbox/pay-ann/pay%231", word, **fields, evidence="the bank")).status_code == 303
        assert "bea pay#1: it" in told((await client.get("/inbox/pay-ann/pay%231")).text)


def links(page: str) -> set[str]:
    """The pages of ours to which this one leads."""
    return {unescape(one) for one in re.findall(r'<a[^>]* href="(/[^"#]*)"', page)}


@pytest.mark.parametrize(
    "grant",
    [Grant("answerer", ("refund",)), Grant("answerer", (), ("money",)), Grant("viewer"), Grant("submitter")],
    ids=str,
)
@virtual
async def test_every_link_that_is_shown_may_be_followed(lab: Lab, grant: Grant):
    async with standing(lab) as stand, await stand.client("boss") as boss, await stand.client("cid", grant) as client:
        await fill(boss, "/inbox/mail-ann/send_mail%231", "delegate", queue="money")
        seen, todo = dict[str, int](), ["/", "/inbox", REFUND, "/inbox/mail-ann/send_mail%231", "/runs/refund-ann"]
        shown = set[str]()
        while todo:
            if (path := todo.pop()) in seen:
                continue
            page = await client.get(path, follow_redirects=True)
            seen[path] = page.status_code
            shown |= links(page.text)
            todo += links(page.text)
        assert {path: seen[path] for path in shown if path != "/" and seen[path] != 200} == {}


@virtual
async def test_sign_in_without_any_account_says_how_the_first_one_is_made(lab: Lab):
    async with standing(lab) as stand, stand.stranger() as client:
        page = (await client.get("/sign-in")).text
        assert "beforehand accounts add NAME --role admin" in page
        assert 'name="password"' not in page
        assert "beforehand serve" not in page, "this server shows no link in its terminal"
        stand.guard = linked(stand, [])
        async with stand.stranger() as local:
            assert "<code>beforehand serve</code> printed" in (await local.get("/sign-in")).text
            await stand.authenticator.accounts.add("bea", [Grant("viewer")], by="root")
            page = (await local.get("/sign-in")).text
            assert "accounts add" not in page
            assert 'name="password"' in page


@virtual
async def test_a_run_without_any_state_has_no_empty_card(lab: Lab):
    @agent(run_id="odd-{name}")
    async def odd(run: Run, name: str) -> str:
        raise ValueError(f"there is no {await run.ask('Which city?', step='city')}")

    async with standing(lab, agents=[odd]) as stand, await stand.client("bea") as client:
        await stand.app.service.answer("odd-ann/city", "Oz", by="cid")
        with pytest.raises(ValueError, match="no Oz"):
            await stand.app.resume("odd-ann")
        page = (await client.get("/inbox/odd-ann")).text
        assert "How it stopped" in page
        assert "State of the run" not in page


@virtual
async def test_tables_and_regions_have_names_of_their_own(lab: Lab):
    """As axe asks: no empty heading of a column, and no two landmarks with one name."""
    async with standing(lab) as stand, await stand.client("bea") as client:
        await fill(client, REFUND, "approve", hours="4")
        for path in ("/health", "/inbox", REFUND, "/inbox/stock-ann/restock%231", "/runs/stock-ann"):
            page = (await client.get(path)).text
            assert not re.search(r"<th[^>]*></th>", page), path
            names = re.findall(r'<(?:section|aside|nav|div)[^>]* aria-label(?:ledby)?="([^"]+)"', page)
            assert sorted(names) == sorted(set(names)), path
