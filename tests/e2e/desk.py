"""The desk that the browser tests sit at. `SENT` is the world: what really left, in order."""

from datetime import timedelta

import msgspec

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import Declined
from beforehand.people import Policy, Rule
from beforehand.policies import Gate

SENT: list[str] = []
CHANGED: list[str] = []  # what an agent's code sends besides, since it was changed

# What a hostile model or tool may write. Each of them would do or fetch something where it was not shown as text.
CANARY = "http://canary.example"
HOSTILE = (
    f"<script>window.caught = 1; fetch('{CANARY}/script')</script>",
    f"<img src={CANARY}/img onerror='window.caught = 2'>",
    f'"><svg onload="window.caught=3"><image href=\'{CANARY}/svg\'></svg>',
    f"</pre></textarea></title><iframe src='{CANARY}/frame'></iframe><script>window.caught=4</script>",
    f"<style>@import url('{CANARY}/css'); body {{ display: none }}</style><link rel=stylesheet href={CANARY}/link>",
    f"![picture]({CANARY}/markdown) [click](javascript:window.caught=5) <a href='javascript:window.caught=6' autofocus>x</a>",
    f"<form action='{CANARY}/form'><button name=type value=approve>Approve</button></form><base href='{CANARY}/'>",
    f"<meta http-equiv=refresh content='0;url={CANARY}/meta'><object data='{CANARY}/object'></object>",
    "{{ 7 * 7 }} {% raw %} ${7*7} #{7*7} \u202e\u200b\u2066gpj.exe p\u0430ypal \x1b[2J",
    "' onmouseover='window.caught=7' x='\" onfocus=\"window.caught=8\" autofocus tabindex=0 y=\"",
)
EVERYTHING = "\n".join(HOSTILE)


class Said(msgspec.Struct):
    """What a model answers."""

    body: str
    why: str
    confidence: float


async def judge(customer: str) -> Said:
    return Said(EVERYTHING, EVERYTHING, 0.82)


@tool(gate=Gate("cents > 5000", within=timedelta(hours=3)), idempotency=Key.forever())
async def refund(customer: str, cents: int, note: str = "") -> str:
    """Pay the money back."""
    SENT.append(f"refund {customer} {cents}")
    return f"paid {cents}"


@tool(gate="true")
async def send_mail(to: str, subject: str, body: str) -> None:
    SENT.append(f"mail {to}")


@tool
async def restock(sku: str) -> str:
    raise TimeoutError(EVERYTHING)


@agent(run_id="refund-{customer}", tools=[refund])
async def refunds(run: Run, customer: str) -> str:
    try:
        return await refund(customer, 9000, note="Broken on arrival.\nPhotos are attached.")
    except Declined as no:
        return await refund(customer, 6000) if no.code == "asked_back" else f"{no.code}: {no.message}"


@agent(run_id="mail-{customer}", tools=[send_mail])
async def mails(run: Run, customer: str) -> None:
    ruling = await run.decide(judge, customer)
    await send_mail(f"{customer}@example.com", HOSTILE[8], ruling.body)


@agent(run_id="trip-{name}")
async def trips(run: Run, name: str) -> str:
    return await run.ask(EVERYTHING, choices=(HOSTILE[9], HOSTILE[0], "Rome"), timeout=timedelta(days=1))


@agent(run_id="stock-{name}", tools=[restock])
async def stocks(run: Run, name: str) -> str:
    return await restock(EVERYTHING)


@tool(idempotency=Key.forever())
async def coupon(customer: str, cents: int) -> str:
    SENT.append(f"coupon {customer} {cents} {current_operation().key[:0]}")
    return "sent"


@agent(run_id="voucher-{customer}", tools=[coupon])
async def vouchers(run: Run, customer: str) -> str:
    return await coupon(customer, 900)


@agent(run_id="claim-{customer}", tools=[coupon])
async def claims(run: Run, customer: str) -> str:
    await run.facts.learn("form", EVERYTHING, source=HOSTILE[1])
    return str(await run.hand_off("travel", why=EVERYTHING, state={"form": "B7", "said": EVERYTHING}))


@agent(run_id="travel-{customer}", tools=[coupon])
async def travels(run: Run, customer: str) -> str:
    await coupon("".join([customer, *CHANGED]), 900)
    return await run.ask("And now?")


POLICY = Policy("coupons", rules=(Rule("coupons", "tool == 'coupon'", "auto", shadow=1.0),))
AGENTS = [refunds, mails, trips, stocks, vouchers, claims, travels]
