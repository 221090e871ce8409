"""Calls in words: what people read before they say yes, and what no value can pretend to be."""

import msgspec
import pytest

from beforehand.model.wording import SHOWN, call_text, shows_whole


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "pay()"),
        ({"invoice": "INV-13", "cents": 103847}, "pay(invoice=INV-13, cents=103847)"),
        ({"to": "Ann Lee", "mail": "ann@example.com"}, 'pay(to="Ann Lee", mail=ann@example.com)'),
        (
            {"customer": "9", "vip": True, "why": None, "word": "null"},
            'pay(customer="9", vip=true, why=null, word="null")',
        ),
        ({"amount": {"$decimal": "10.50"}, "on": {"$date": "2026-05-08"}}, "pay(amount=10.50, on=2026-05-08)"),
        ({"card": {"$redacted": True}, "said": "(redacted)"}, 'pay(card=(redacted), said="(redacted)")'),
        ({"lines": [{"sku": "a"}], "note": "a\nb"}, 'pay(lines=[{"sku":"a"}], note="a\\nb")'),
    ],
)
def test_a_call_is_read_like_a_call(arguments: dict[str, object], text: str):
    assert call_text("pay", msgspec.json.encode(arguments)) == text


@pytest.mark.parametrize("value", ["INV-13, cents=1", "INV-13)", 'INV" cents=1', "a=b", "a b", "1e3", "-1", ""])
def test_no_text_is_read_as_another_argument_or_as_a_number(value: str):
    text = call_text("pay", msgspec.json.encode({"invoice": value, "cents": 5}))
    assert text == f"pay(invoice={msgspec.json.encode(value).decode()}, cents=5)"


def test_a_name_that_a_model_chose_is_no_other_call():
    assert call_text("pay(cents=1)", b'{"a=1, b":2}') == '"pay(cents=1)"("a=1, b"=2)'
    assert call_text("pay", b"[1]") == "pay([1])"
    assert call_text("pay", b"{not json") == "pay({not json)"


def test_a_long_call_is_cut_and_the_question_does_not_show_it_whole():
    arguments = msgspec.json.encode({"text": "x y" * SHOWN})
    text = call_text("post", arguments)
    assert text.endswith(" more characters)")
    assert len(text) < SHOWN + 30
    assert not shows_whole(f"may {text} be sent?", "post", arguments)
    assert shows_whole("may pay(cents=5) be sent?", "pay", b'{"cents":5}')
    assert not shows_whole("pay five cents: may it be sent?", "pay", b'{"cents":5}')
