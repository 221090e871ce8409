"""People answer in a real browser: on a phone, two at once, too late, twice, without a mouse, without scripts."""

import re

import pytest
from playwright.sync_api import Page, expect

from beforehand.errors import RunSuspended
from beforehand.model import records as r
from tests.e2e.conftest import PHONE, Enter
from tests.e2e.desk import SENT, mails, refunds, stocks, trips
from tests.e2e.served import Served

CONFLICT = "status of 409"  # what a browser notes in its console about an answer that was refused


def answer(page: Page, title: str, **fields: str) -> None:
    """Open a form, fill it in and send it."""
    form = page.locator("details.answer", has=page.locator("summary", has_text=re.compile(f"^{title}$")))
    form.locator("summary").click()
    for label, value in fields.items():
        form.get_by_label(label.replace("_", " ")).fill(value)
    form.get_by_role("button").click()


def test_approving_on_a_phone(desk: Served, enter: Enter):
    desk.begin(refunds, "anna")
    page = enter(**PHONE)
    page.get_by_role("link", name="refund-anna/refund#1").tap()
    expect(page.get_by_role("heading", level=1)).to_have_text("Send refund?")
    expect(page.get_by_label("Exact arguments")).to_contain_text("9000")
    assert page.evaluate("document.documentElement.scrollWidth") == 390, "nothing is wider than the phone"
    reach = page.get_by_role("navigation", name="Answers").get_by_role("link", name="Approve")
    expect(reach).to_be_in_viewport()
    reach.tap()
    page.get_by_label("Why").first.fill("seen the photos")
    page.get_by_role("button", name="Approve").tap()
    expect(page.get_by_label("The answer")).to_contain_text("bea approves it: seen the photos")
    assert desk.go_on("refund-anna") == "paid 9000"
    assert SENT == ["refund anna 9000"]
    page.get_by_role("link", name="Inbox").first.tap()
    expect(page.get_by_text("Nothing needs you", exact=True)).to_be_visible()


def test_what_is_shown_is_what_is_dispatched(desk: Served, enter: Enter):
    desk.begin(refunds, "anna")
    page = enter()
    page.goto("/inbox/refund-anna/refund%231")
    shown = page.locator(".digest code").first.inner_text()
    assert page.locator('input[name="shown"]').first.input_value() == shown
    answer(page, "Approve")
    expect(page.get_by_label("The answer")).to_be_visible()
    desk.go_on("refund-anna")
    records = desk.records("refund-anna")
    (granted,) = [one for one in records if isinstance(one, r.ApprovalGranted)]
    (sent,) = [one for one in records if isinstance(one, r.AttemptStarted)]
    assert (granted.by, granted.approval, sent.approval) == ("bea", shown, shown)


@pytest.mark.deep
def test_proposing_changes_that_another_person_approves(desk: Served, enter: Enter):
    desk.begin(refunds, "anna")
    page = enter(expected=CONFLICT)
    page.get_by_role("link", name="refund-anna/refund#1").click()
    changed = '{"customer": "anna", "cents": %s, "note": ""}'
    answer(page, "Propose changes", **{"Arguments, as JSON": changed % '"many"'})
    expect(page.get_by_role("alert")).to_contain_text("cents")
    answer(page, "Propose changes", **{"Arguments, as JSON": changed % 700})
    with pytest.raises(RunSuspended, match="700"):
        desk.go_on("refund-anna")
    assert SENT == []
    other = enter("cleo")
    other.goto("/inbox/refund-anna/refund%231")
    answer(other, "Approve")
    expect(other.get_by_label("The answer")).to_be_visible()
    assert desk.go_on("refund-anna") == "paid 700"
    assert SENT == ["refund anna 700"]


def test_of_two_people_who_click_at_once_the_second_is_told(desk: Served, enter: Enter):
    desk.begin(refunds, "anna")
    bea, cleo = enter("bea", expected=CONFLICT), enter("cleo")
    for page in (bea, cleo):
        page.goto("/inbox/refund-anna/refund%231")
    answer(cleo, "Decline", Why_not="too much")
    expect(cleo.get_by_label("The answer")).to_be_visible()
    answer(bea, "Approve")
    expect(bea.get_by_role("alert")).to_contain_text("answered")
    assert desk.go_on("refund-anna").endswith("too much")
    assert SENT == []
    assert [one.by for one in desk.records("refund-anna") if isinstance(one, r.ApprovalRefused)] == ["cleo"]


@pytest.mark.deep
def test_what_expires_while_somebody_reads_is_not_sent(desk: Served, enter: Enter):
    desk.begin(refunds, "anna")
    page = enter(expected=CONFLICT)
    page.goto("/inbox/refund-anna/refund%231")
    desk.clock.ahead_ms += 4 * 3_600_000
    answer(page, "Approve")
    page.wait_for_load_state()
    assert desk.go_on("refund-anna").startswith("expired")
    assert SENT == []
    page.goto("/inbox")
    expect(page.get_by_text("Nothing needs you", exact=True)).to_be_visible()


@pytest.mark.deep
def test_a_form_that_is_sent_again_changes_nothing(desk: Served, enter: Enter):
    desk.begin(refunds, "anna")
    page = enter(expected=CONFLICT)
    page.goto("/inbox/refund-anna/refund%231")
    form = {name: page.locator(f'input[name="{name}"]').first.input_value() for name in ("type", "shown", "hours")}
    answer(page, "Approve")
    expect(page.get_by_label("The answer")).to_be_visible()
    desk.go_on("refund-anna")
    again = page.evaluate(
        """async (form) => (await fetch(location.href, {method: "POST", body: new URLSearchParams(form)})).status""",
        form,
    )
    assert again == 409
    assert SENT == ["refund anna 9000"]


def test_another_site_cannot_send_a_form_for_somebody(desk: Served, enter: Enter):
    desk.begin(refunds, "anna")
    page = enter(expected="403")
    page.goto("/inbox/refund-anna/refund%231")
    shown = page.locator('input[name="shown"]').first.input_value()
    elsewhere = desk.address.replace("127.0.0.1", "localhost")
    foreign = page.context.request.post(
        f"{desk.address}/inbox/refund-anna/refund%231",
        form={"type": "approve", "hours": "4", "shown": shown},
        headers={"origin": elsewhere},
    )
    assert foreign.status == 403
    expect(page.get_by_label("The answer")).not_to_be_visible()


@pytest.mark.deep
def test_without_a_mouse(desk: Served, enter: Enter):
    desk.begin(refunds, "anna")
    desk.begin(refunds, "bert")
    page = enter()
    page.keyboard.press("Tab")
    expect(page.get_by_text("To the content")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Send refund?").wait_for()
    page.keyboard.press("d")
    page.keyboard.press("Tab")
    page.keyboard.type("not today")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("The answer")).to_be_visible()
    declined = [run for run in ("refund-anna", "refund-bert") if "not today" in str(desk.records(run))]
    assert declined == ["refund-bert"], "the second one of the list"


@pytest.mark.deep
def test_without_scripts(desk: Served, enter: Enter):
    desk.begin(refunds, "anna")
    desk.begin(refunds, "bert")
    page = enter(java_script_enabled=False, **PHONE)
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Read and answer together").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("2 items, one answer")
    assert page.get_by_label("Exact arguments").count() == 2
    page.get_by_role("button", name="Decline all").click()
    expect(page.get_by_text("Nothing needs you", exact=True)).to_be_visible()
    assert "declined" in desk.go_on("refund-anna")
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.deep)])
def test_what_models_and_tools_write_is_text(desk: Served, enter: Enter, scheme: str):
    """The corpus in every field that a model, a tool or a person can write; any request elsewhere fails the test."""
    desk.begin(mails, "anna")
    desk.begin(trips, "anna")
    desk.begin(stocks, "anna")
    page = enter(color_scheme=scheme)
    for path in ("/inbox", "/inbox/mail-anna/send_mail%231", "/inbox/trip-anna/ask%231", "/inbox/stock-anna/restock%231",
                 "/bulk?item=mail-anna/send_mail%231", "/runs", "/runs/mail-anna", "/runs/trip-anna", "/runs/stock-anna"):  # fmt: skip
        answered = page.goto(path)
        assert answered is not None
        assert (path, answered.status) == (path, 200)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("window.caught ?? 0") == 0
        assert (
            page.locator("main script, main iframe, main style, main object, main svg, main meta, main base").count()
            == 0
        )
        assert page.locator("main img:not([src^='/static/'])").count() == 0
        assert "\u202e" not in page.content()
        assert "\x1b" not in page.content()
    page.goto("/inbox/mail-anna/send_mail%231")
    expect(page.get_by_label("Exact arguments")).to_contain_text("<script>window.caught = 1;")
    expect(page.get_by_label("Exact arguments")).to_contain_text("\\u202e")


@pytest.mark.deep
def test_what_people_write_is_text_too(desk: Served, enter: Enter):
    hostile = "<img src=http://canary.example/x onerror='window.caught=9'>\u202e"
    desk.begin(refunds, "anna")
    page = enter()
    page.goto("/inbox/refund-anna/refund%231")
    answer(page, "Delegate it", To_whom=hostile, To_which_queue=hostile, Why=hostile)
    expect(page.get_by_text("delegated it to")).to_contain_text("<img src=")
    answer(page, "Ask back", **{"What do you want to know?": hostile})
    expect(page.get_by_label("The answer")).to_be_visible()
    desk.begin(refunds, "anna")
    for path in ("/inbox", "/inbox/refund-anna/refund%232", "/runs/refund-anna"):
        page.goto(path)
        page.wait_for_load_state("networkidle")
    expect(page.get_by_text("asks back").first).to_contain_text("<img src=")


def test_a_question_is_answered_by_one_of_its_choices(desk: Served, enter: Enter):
    desk.begin(trips, "anna")
    page = enter(**PHONE)
    page.goto("/inbox/trip-anna/ask%231")
    page.get_by_label("Your answer").last.select_option("Rome")
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_label("The answer")).to_be_visible()
    assert desk.go_on("trip-anna") == "Rome"
