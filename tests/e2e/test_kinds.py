"""The kinds that are no approval, in a real browser: what is handed over, what left already, and how people keep up."""

import pytest
from playwright.sync_api import Locator, Page, expect

from beforehand.errors import ReplayDiverged, RunStopped
from beforehand.model import records as r
from tests.e2e.conftest import PHONE, Enter
from tests.e2e.desk import CHANGED, HOSTILE, claims, coupon, refunds, travels, vouchers
from tests.e2e.served import Served
from tests.e2e.test_inbox import answer

HANDED, LEFT = "/inbox/claim-anna/hand_off%231", "/shadow-reviews/voucher-anna/coupon%231"


def top(what: Locator) -> float:
    box = what.bounding_box()
    assert box is not None, "it is seen"
    return box["y"]


def fits(page: Page) -> None:
    size = page.viewport_size
    assert size is not None
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"], "nothing is wider than the phone"


@pytest.mark.deep
def test_a_hand_off_is_given_back_with_an_answer(desk: Served, enter: Enter):
    desk.begin(claims, "anna")
    page = enter(**PHONE)
    page.get_by_role("link", name="claim-anna/hand_off#1").tap()
    expect(page.get_by_role("heading", level=1)).to_have_text("The run is handed over")
    expect(page.get_by_label("The question")).to_contain_text(HOSTILE[0])
    expect(page.locator("main")).to_contain_text("B7")
    fits(page)
    page.get_by_label("Your answer").last.fill("signed")
    page.get_by_role("button", name="Answer", exact=True).tap()
    expect(page.get_by_label("The answer")).to_be_visible()
    assert desk.go_on("claim-anna") == "signed"


def test_a_hand_off_is_taken_over_and_the_run_ends(desk: Served, enter: Enter):
    desk.begin(claims, "anna")
    page = enter()
    page.goto(HANDED)
    answer(page, "Take it over", Why="I call them")
    expect(page.get_by_label("The answer")).to_be_visible()
    with pytest.raises(RunStopped, match="handed_over"):
        desk.go_on("claim-anna")
    assert "I call them" in str(desk.records("claim-anna"))


@pytest.mark.deep
@pytest.mark.parametrize(("title", "word"), [("It was right", "right"), ("It was wrong", "wrong")])
def test_what_left_is_judged_afterwards(desk: Served, enter: Enter, title: str, word: str):
    assert desk.do(lambda app: app.run(vouchers, "anna")) == "sent"
    page = enter(**PHONE)
    expect(page.get_by_text("Nothing needs you", exact=True)).to_be_visible()
    page.get_by_role("link", name="1 sent call waits").tap()
    page.get_by_role("link", name="voucher-anna/coupon#1").tap()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Was it right to send {coupon.name}?")
    expect(page.get_by_label("Exact arguments")).to_contain_text("anna")
    fits(page)
    answer(page, title, Why="looked at it")
    expect(page.get_by_text(f"said that it was {word}.")).to_be_visible()
    page.goto("/shadow-reviews")
    expect(page.get_by_text("No call waits for a review.")).to_be_visible()
    page.goto("/health")
    expect(page.get_by_role("row", name="coupon")).to_contain_text("100.0%" if word == "wrong" else "0.0%")
    assert [one for one in desk.records("voucher-anna") if isinstance(one, r.RunCompleted)], "it had left already"


@pytest.mark.deep
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_alarms_are_the_first_thing_on_the_page_of_health(desk: Served, enter: Enter, scheme: str):
    desk.begin(refunds, "anna")
    desk.clock.ahead_ms += 30 * 3_600_000
    page = enter(color_scheme=scheme, **PHONE)
    page.get_by_role("link", name="Health").tap()
    alarms = page.get_by_role("list", name="Alarms")
    expect(alarms).to_contain_text("the oldest has waited for 30 hours")
    assert top(alarms) < top(page.get_by_text("median decision"))
    fits(page)
    page.get_by_role("link", name="1 day").tap()
    expect(page.get_by_role("link", name="1 day")).to_have_attribute("aria-current", "true")
    page.get_by_role("link", name="refund-anna/refund#1").tap()
    expect(page.get_by_role("heading", level=1)).to_have_text("Send refund?")


@pytest.mark.deep
def test_answers_with_the_same_letter_open_in_turn(desk: Served, enter: Enter):
    desk.do(lambda app: app.run(vouchers, "anna"))
    page = enter()
    page.goto(LEFT)
    for title in ("It was right", "It was wrong", "It was right"):
        page.keyboard.press("i")
        expect(page.locator("details[open] summary")).to_have_text(title)


@pytest.mark.deep
def test_the_bar_fits_on_the_smallest_phone(desk: Served, enter: Enter):
    page = enter(**{**PHONE, "viewport": {"width": 320, "height": 640}})
    for path in ("/inbox", "/runs", "/health"):
        page.goto(path)
        fits(page)


def test_a_run_that_cannot_go_on_is_let_go_on_where_its_code_is_mended(desk: Served, enter: Enter):
    desk.begin(travels, "anna")
    CHANGED.append(HOSTILE[0])
    with pytest.raises(ReplayDiverged):
        desk.go_on("travel-anna")
    CHANGED.clear()
    page = enter(**PHONE)
    page.get_by_role("link", name="diverged: ReplayDiverged").tap()
    expect(page.get_by_role("heading", level=1)).to_have_text("The run cannot go on")
    expect(page.get_by_label("The question")).to_contain_text("- recorded: coupon")
    expect(page.get_by_label("The question")).to_contain_text(HOSTILE[0])
    expect(page.get_by_label("The run")).to_contain_text("travel-anna/coupon#1")
    fits(page)
    answer(page, "Resume it", Why="the old code is back")
    expect(page.get_by_label("The answer")).to_be_visible()
    (reopened,) = [one for one in desk.records("travel-anna") if isinstance(one, r.RunReopened)]
    assert (reopened.by, reopened.note) == ("bea", "the old code is back")
