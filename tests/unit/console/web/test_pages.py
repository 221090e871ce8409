"""The pages without a browser: what they show, the forms they offer, and what the forms do."""

import re
from datetime import timedelta
from html import unescape
from urllib.parse import quote

import httpx2
import pytest

from beforehand import Run, agent, tool
from beforehand.errors import RunSuspended, UsageError
from beforehand.people import answers as a
from beforehand_console.auth.accounts import AccountNote
from beforehand_console.auth.authorize import Grant
from beforehand_console.reviews.seeded_cases import SeededCase
from beforehand_console.reviews.seeding import seed_cases
from beforehand_console.web import forms
from tests.unit.console.web.stand import standing
from tests.unit.engine.lab import Lab, virtual

REFUND = "/inbox/refund-ann/refund%231"


def shown_in(page: httpx2.Response) -> str:
    """The digest that the page's forms send."""
    return re.findall(r'name="shown" value="(\w+)"', page.text)[0]


async def fill(client: httpx2.AsyncClient, path: str, kind: str, **fields: str) -> httpx2.Response:
    page = await client.get(path)
    return await client.post(path, data={"type": kind, "shown": shown_in(page), **fields})


@virtual
async def test_the_inbox_is_a_list_of_links_without_scripts(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        page = await client.get("/inbox")
        assert page.status_code == 200
        assert "4 items wait for a person" in page.text
        assert 'href="/inbox/refund-ann/refund%231"' in page.text
        assert "due in 3 h" in page.text
        assert not re.search(r"<script(?! src=)|\son\w+=|style=", page.text), "nothing inline"
        assert "script-src 'self'" in page.headers["content-security-policy"]
        for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
            static = await client.get(address)
            assert (static.status_code, "immutable" in static.headers["cache-control"]) == (200, True)
        narrow = await client.get("/inbox?kind=question")
        assert "trip-ann" in narrow.text
        assert "refund-ann" not in narrow.text


@virtual
async def test_an_item_shows_the_exact_arguments_and_nothing_hidden(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        page = (await client.get("/inbox/mail-ann/send_mail%231")).text
        assert "\u202e" not in page
        assert "\x1b" not in page
        assert "\\u202e" in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert "CYRILLIC SMALL LETTER A" in page
        refund = (await client.get(REFUND)).text
        assert "<pre>9000</pre>" in refund
        assert "broken\non arrival" in unescape(refund)
        assert "beforehand answer refund-ann/refund#1 yes --shown " in refund


@virtual
async def test_what_anybody_wrote_is_text_on_every_page(lab: Lab):
    """A tool's error, a model's question and reasons, a person's note: none of it is markup."""
    markup = "<svg onload=alert(1)>"

    @tool
    async def restock(sku: str) -> str:
        raise TimeoutError(markup)

    @agent(run_id="stock-{name}", tools=[restock])
    async def stocks(run: Run, name: str) -> str:
        return await restock(markup)

    @agent(run_id="trip-{name}")
    async def trips(run: Run, name: str) -> str:
        return await run.ask(markup, choices=(markup, "Rome"), default=markup, timeout=timedelta(days=1))

    @agent(run_id="far-{name}")
    async def far(run: Run, name: str) -> str:
        return await run.hand_off(markup, why=markup, state={markup: markup})

    async with standing(lab, agents=[stocks, trips, far]) as stand, await stand.client("bea") as client:
        paths = ["stock-ann/restock%231", "trip-ann/ask%231", "far-ann/hand_off%231"]
        for path in paths:
            given = await fill(client, f"/inbox/{path}", "delegate", to=markup, why=markup)
            assert given.status_code == 303, given.text
        runs = [f"/runs/{path.partition('/')[0]}" for path in paths]
        for path in ["/inbox", *(f"/inbox/{path}" for path in paths), *runs]:
            page = await client.get(path)
            assert page.status_code == 200, path
            assert "<svg onload" not in page.text, path
            assert "&lt;svg onload" in page.text, path


@virtual
async def test_approving_with_a_form_sends_what_was_shown(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        taken = await fill(client, REFUND, "approve", hours="4", why="fine")
        assert (taken.status_code, taken.headers["location"]) == (303, REFUND)
        assert "bea approves it: fine" in (await client.get(REFUND)).text
        await stand.app.resume("refund-ann")
    assert lab.sent == ["refund 9000"]


@virtual
async def test_edited_arguments_are_sent_once_another_person_approved_them(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client, await stand.client("cid") as other:
        same = await fill(client, REFUND, "edit", arguments='{"cents": 9000, "note": "broken\\non arrival"}')
        assert (same.status_code, "nothing is different" in same.text) == (409, True)
        wrong = await fill(client, REFUND, "edit", arguments="{cents: 5}")
        assert (wrong.status_code, "cannot be read" in wrong.text) == (409, True)
        taken = await fill(client, REFUND, "edit", arguments='{"cents": 7000, "note": "broken\\non arrival"}')
        assert taken.status_code == 303, taken.text
        with pytest.raises(RunSuspended):
            await stand.app.resume("refund-ann")
        own = await fill(client, REFUND, "approve", hours="4")
        assert (own.status_code, "proposed refund-ann/refund#1 and cannot approve it" in own.text) == (403, True)
        assert lab.sent == []
        assert (await fill(other, REFUND, "approve", hours="4")).status_code == 303
        await stand.app.resume("refund-ann")
    assert lab.sent == ["refund 7000"]


@virtual
async def test_a_new_proposal_is_shown_beside_the_one_before(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        assert (await fill(client, REFUND, "ask_back", question="Why so much?")).status_code == 303
        with pytest.raises(Exception, match="waits"):
            await stand.app.resume("refund-ann")
        page = (await client.get("/inbox/refund-ann/refund%232")).text
        assert '<span class="old">- 9000</span>' in page
        assert '<span class="new">+ 6000</span>' in page
        assert "Why so much?" in page


@virtual
async def test_a_form_that_is_sent_again_or_too_late_says_so_and_keeps_the_page(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        form = {"type": "approve", "hours": "4", "shown": shown_in(await client.get(REFUND))}
        assert (await client.post(REFUND, data=form)).status_code == 303
        again = await client.post(REFUND, data=form)
        assert (again.status_code, 'role="alert"' in again.text) == (409, True)
        without = await client.post("/inbox/mail-ann/send_mail%231", data={"type": "approve", "hours": "4"})
        assert (without.status_code, "what was shown" in without.text) == (409, True)
    assert lab.sent == []


@virtual
async def test_several_items_are_read_before_they_are_answered(lab: Lab):
    async with standing(lab, begun=("ann", "ben")) as stand, await stand.client("bea") as client:
        names = ["refund-ann/refund#1", "refund-ben/refund#1"]
        page = await client.get("/bulk", params={"item": names})
        assert page.text.count("<pre>9000</pre>") == 2
        digests = re.findall(r'name="shown" value="(\w+)"', page.text)[:2]
        taken = await client.post("/bulk", data={"type": "decline", "why": "no", "item": names, "shown": digests})
        assert taken.status_code == 303
        again = await client.post("/bulk", data={"type": "decline", "why": "no", "item": names, "shown": digests})
        assert again.status_code == 409
        many = await client.get("/bulk", params={"item": [f"refund-{number}/refund#1" for number in range(21)]})
        assert "too many to read" in many.text


@virtual
async def test_people_sign_in_and_out(lab: Lab):
    async with standing(lab) as stand, stand.stranger() as client:
        kept = stand.authenticator._passwords.hashed("long enough to be one", "ann")
        await stand.authenticator.accounts.add("ann", [Grant("answerer")], by="root")
        await stand.authenticator.accounts.change("ann", AccountNote("password", "root", hash=kept))
        led = await client.get("/inbox")
        assert (led.status_code, led.headers["location"]) == (303, "/sign-in?next=/inbox")
        wrong = await client.post("/sign-in", data={"name": "ann", "password": "wrong"})
        assert (wrong.status_code, "is wrong" in wrong.text) == (401, True)
        entered = await client.post(
            "/sign-in", data={"name": "ann", "password": "long enough to be one", "next": "//evil.example"}
        )
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert (await client.get("/inbox")).status_code == 200
        assert (await client.post("/sign-out")).status_code == 303
        assert (await client.get("/inbox")).status_code == 303


@virtual
async def test_runs_have_pages_and_what_is_not_there_says_so(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        assert "mail-ann" in (await client.get("/runs?status=suspended")).text
        story = (await client.get("/runs/mail-ann")).text
        assert "\u202e" not in story
        assert 'href="/inbox/mail-ann/send_mail%231"' in story
        for path, status in (("/runs/nobody", 404), ("/inbox/nobody/x", 404), ("/other", 404), ("/inbox?limit=0", 400)):
            assert (path, (await client.get(path)).status_code) == (path, status)
        assert (await client.get("/static/other.css")).status_code == 404


def test_every_answer_has_a_form_and_every_form_an_answer():
    kinds = {str(one.__struct_config__.tag) for one in a.Answer.__args__}
    assert set(forms.FORMS) == kinds


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"type": "approve", "hours": "2.5", "why": " fine "}, a.Approve("fine", 2.5)),
        ({"type": "happened", "result": '{"id": 7}'}, a.HappenedAnswer(result={"id": 7})),
        ({"type": "snooze", "until_ms": "2026-12-01T08:00"}, a.Snooze(1_796_112_000_000)),
        ({"type": "did_not_happen", "then": "retry"}, a.DidNotHappenAnswer("retry")),
        ({"type": "reply", "value": "Rome"}, a.ReplyAnswer("Rome")),
        ({"type": "happened_times", "times": "1", "then": "retry"}, a.HappenedTimes(1, "retry")),
    ],
)
def test_a_form_is_read_as_its_answer(fields: dict[str, str], answer: a.Answer):
    assert forms.read({**fields, "shown": "d1"}) == (answer, "d1")


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "joke"}, {}, {"type": "approve", "hours": "soon"}, {"type": "approve", "hours": ""},
        {"type": "ask_back", "question": "  "}, {"type": "snooze", "until_ms": "tomorrow"},
        {"type": "did_not_happen", "then": "perhaps"}, {"type": "approve", "hours": "nan"},
    ],
)  # fmt: skip
def test_a_form_that_makes_no_sense_is_refused(fields: dict[str, str]):
    with pytest.raises(UsageError):
        forms.read(fields)


@virtual
async def test_a_parameter_that_was_deleted_from_the_arguments_is_not_sent_silently(lab: Lab):
    """A person who takes a parameter out of the text approves a call without it, and that is not what would be sent."""
    async with standing(lab) as stand, await stand.client("bea") as client:
        cut = await fill(client, REFUND, "edit", arguments='{"cents": 7000}')
        assert (cut.status_code, "note is not in these arguments" in cut.text) == (409, True)
        with pytest.raises(RunSuspended):
            await stand.app.resume("refund-ann")
    assert lab.sent == []


@virtual
async def test_who_answers_what_was_planted_is_told_on_the_page_also_of_one_among_several(lab: Lab):
    case = SeededCase("refund", {"cents": 900_000}, why="ten <b>times</b> the price")
    async with standing(lab, begun=("ann", "ben")) as stand, await stand.client("bea") as client:
        one, other = (await seed_cases(stand.app.engine, [case], rate=0.5)).items
        told = await fill(client, f"/inbox/{quote(one)}", "decline")
        assert told.status_code == 200
        assert "This one was planted, and you caught it: ten &lt;b&gt;times&lt;/b&gt; the price" in told.text
        names = [other, "refund-ann/refund#1"]
        digests = [shown_in(await client.get(f"/inbox/{quote(name)}")) for name in names]
        several = await client.post(
            "/bulk", data={"type": "approve", "why": "", "hours": "24", "item": names, "shown": digests}
        )
        assert "you let it through" in several.text
        assert several.text.count('role="alert"') == 1, "only that one"
