"""Amounts of money in budgets: whole billionths of one currency. Pure.

Prices are decimal numbers (`inspect/prices.py`). What a budget counts is rounded up to a billionth once, when it is
recorded, so all sums and comparisons of budgets are those of whole numbers. Currencies are never converted.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache
from typing import Final

import msgspec

from beforehand.model.usage import CallCost

EXACT: Final = Context(prec=60)
"""The arithmetic of amounts: enough digits that no sum or product of prices and tokens is rounded."""
BILLION: Final = 10**9
HIGHEST: Final = 10**9
"""The highest amount of a limit, in whole currency: a thousand million."""
HIGHEST_UNITS: Final = HIGHEST * BILLION
MOST_UNITS: Final = 2**63 - 1
"""The highest sum of billionths, which is what a journal stores as one number."""
_ROUNDED_UP: Final = Context(prec=60, rounding=ROUND_CEILING)
_STEP: Final = Decimal(1).scaleb(-9)
_DECIMALS: Final = 9
_WRITTEN: Final = re.compile(r"\s*(-?)(\d{1,40})(?:\.(\d{1,40}))?\s*([A-Za-z]+)\s*", re.ASCII)
_CODES: Final = """
AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP
CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR
ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT
MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD
SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND
VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWG
"""
"""The ISO 4217 codes of money that is in use."""
CURRENCIES: Final = frozenset(_CODES.split())


class Money(msgspec.Struct, frozen=True):
    """An amount in billionths of a currency. Its text is the form in which it is written: `2.50 EUR`."""

    units: int
    currency: str

    def __str__(self) -> str:
        return f"{amount_of(self.units):f} {self.currency}"


def written_money(text: object) -> Money:
    """An amount with its currency, as people write it: `2.50 EUR`. Raises `ValueError` saying what is wrong."""
    if type(text) is not str:
        raise ValueError(f"{str(text)[:60]!r} is not text with an amount and its currency, such as '2.50 EUR'")
    return _money(text)


@lru_cache(maxsize=256)
def _money(text: str) -> Money:
    if (found := _WRITTEN.fullmatch(text)) is None:
        raise ValueError(f"{text[:60]!r} is not an amount and its currency, such as '2.50 EUR'")
    sign, whole, part, currency = found[1], found[2], found[3] or "", found[4]
    if (fault := currency_fault(currency)) is not None:
        raise ValueError(fault)
    units = int(whole) * BILLION + int(part[:_DECIMALS].ljust(_DECIMALS, "0"))
    if sign:
        raise ValueError(f"{text.strip()[:60]} is below zero")
    if part[_DECIMALS:].strip("0"):
        raise ValueError(f"{text.strip()[:60]} is finer than a billionth")
    if units > HIGHEST_UNITS:
        raise ValueError(f"{text.strip()[:60]} is above {HIGHEST:,} {currency}")
    return Money(units, currency)


def currency_fault(code: object) -> str | None:
    """The reason why this is not the code of a currency; None for one that is."""
    if isinstance(code, str) and code in CURRENCIES:
        return None
    from beforehand.model.alike import nearest  # noqa: PLC0415 - only for an error

    near = nearest(str(code).upper()[:60], CURRENCIES)
    return f"{code!r:.62} is not an ISO 4217 code" + (f"; did you mean {near}?" if near else "")


def amount_of(units: int) -> Decimal:
    """The decimal number of billionths, with at least two decimals."""
    amount = EXACT.multiply(Decimal(units), _STEP)
    whole, _, part = f"{amount:f}".partition(".")
    return Decimal(f"{whole}.{part.rstrip('0').ljust(2, '0')}")


def shown_units(units: int) -> str:
    """The amount in digits, without a currency."""
    return f"{amount_of(units):,f}"


def units_of(cost: CallCost | None, currency: str) -> int | None:
    """The billionths of an amount on record, rounded up; None where it is not known in this currency."""
    if cost is None or cost.currency != currency:
        return None
    scaled = EXACT.multiply(cost.amount, Decimal(BILLION))
    return min(MOST_UNITS, int(scaled.to_integral_value(context=_ROUNDED_UP)))


def reported_units(amount: float) -> int:
    """The billionths of an amount that code reported as a number, to the nearest one."""
    scaled = EXACT.multiply(Decimal(repr(amount)), Decimal(BILLION))
    return min(MOST_UNITS, int(scaled.to_integral_value()))


def counted(cost: CallCost) -> CallCost:
    """The cost as a budget counts and records it: rounded up to a billionth."""
    units = units_of(cost, cost.currency)
    assert units is not None, cost
    return CallCost(amount_of(units), cost.currency, cost.basis)


def cost_counter(currency: str) -> str:
    """The name of the counter of a cost that runs share: it has the currency in it, so no counter adds up two."""
    return f"cost {currency}"


def counter_currency(counter: str) -> str:
    """The currency of a counter; empty for one that counts something else."""
    return counter.partition(" ")[2]
