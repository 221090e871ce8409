"""Where a request comes from, where we listen, whom a proxy may name: the pure parts, against a corpus of tricks."""

import secrets

import pytest

from beforehand.errors import UsageError
from beforehand.model.addresses import is_loopback
from beforehand_console.auth.csrf import RequestOrigin, refusal
from beforehand_console.auth.proxy import TrustedProxy
from beforehand_console.auth.site import (
    Site,
    checked_bind,
    cookie_name,
    ended_cookie,
    local_path,
    loopback,
    presented,
    session_cookie,
)

OWN = "https://inbox.example.com"

# --- crossing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("origin", "site"),
    [
        ("https://evil.example", None),
        ("https://evil.example", "cross-site"),
        ("https://evil.example", "same-origin"),
        ("https://inbox.example.com.evil.example", None),
        ("https://evil.inbox.example.com", None),
        ("http://inbox.example.com", None),
        ("https://inbox.example.com:8443", None),
        ("https://inbox.example.com/", None),
        ("https://inbox.example.com ", None),
        ("null", None),
        ("null", "same-origin"),
        ("", None),
        ("", "same-origin"),
        ("file:" + "//", None),
        (OWN, "cross-site"),
        (OWN, "same-site"),
        (OWN, ""),
        (OWN, "Same-Origin"),
        (OWN, "same-origin, cross-site"),
        (None, "cross-site"),
        (None, "same-site"),
        (None, "nonsense"),
        (None, None),
    ],
)
def test_what_changes_something_has_to_come_from_here(method: str, origin: str | None, site: str | None):
    assert refusal(RequestOrigin(method, origin, site), OWN)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(
    ("origin", "site"),
    [(OWN, None), (OWN, "same-origin"), (None, "same-origin"), ("HTTPS://INBOX.example.com", "none")],
)
def test_our_own_forms_pass(method: str, origin: str | None, site: str | None):
    assert not refusal(RequestOrigin(method, origin, site), OWN)


def test_a_program_with_a_token_need_not_say_where_it_is_but_a_page_elsewhere_cannot_use_one():
    assert not refusal(RequestOrigin("POST", has_token=True), OWN)
    assert refusal(RequestOrigin("POST", "https://evil.example", has_token=True), OWN)
    assert refusal(RequestOrigin("POST", site="cross-site", has_token=True), OWN)
    assert refusal(RequestOrigin("GET", site="cross-site", mode="cors", dest="empty", has_token=True), OWN)


@pytest.mark.parametrize(
    ("site", "mode", "dest", "passes"),
    [
        (None, None, None, True),
        ("same-origin", "cors", "empty", True),
        ("none", "navigate", "document", True),
        ("cross-site", "navigate", "document", True),  # a link in a mail
        ("cross-site", "navigate", "iframe", False),
        ("cross-site", "navigate", "object", False),
        ("cross-site", "no-cors", "image", False),
        ("cross-site", "no-cors", "script", False),
        ("cross-site", "cors", "empty", False),
        ("same-site", "no-cors", "style", False),
        ("cross-site", None, None, False),
    ],
)
def test_nothing_of_ours_is_loaded_into_other_pages(site: str | None, mode: str | None, dest: str | None, passes: bool):
    assert (refusal(RequestOrigin("GET", None, site, mode, dest), OWN) == "") is passes


# --- the site --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "127.0.0.1:9999", "localhost.evil.example:8080", "127.0.0.1:8080.evil.example", "",
     "localhost:8080,evil.example", "evil@localhost:8080", "localhost:8080.", "0.0.0.0:8080", "2130706433:8080"],
)  # fmt: skip
def test_a_name_that_was_made_to_lead_here_is_not_ours(host: str):
    assert loopback(8080).origin(host) is None


def test_our_names_are_ours_in_any_case():
    assert loopback(8080).origin("LocalHost:8080") == "http://localhost:8080"
    assert loopback(80).origin("[::1]") == "http://[::1]"
    assert loopback(443, "https").origin("localhost") == "https://localhost"
    assert loopback(80, "https").origin("localhost") is None
    assert Site(OWN).origin("Inbox.Example.com") == OWN
    assert Site(OWN, "http://localhost:1").origins == (OWN, "http://localhost:1")


@pytest.mark.parametrize(
    "origin",
    ["inbox.example.com", "ftp://x.example", "https://x.example/", "https://x.example/a", "https://a:b@x.example",
     "https://x.example:443", "https://", "https://x.example:port", "https://exämple.org", "https://x.example?a", "https://x.example#a"],
)  # fmt: skip
def test_what_is_no_address_of_a_site_is_refused(origin: str):
    with pytest.raises(UsageError):
        Site(origin)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"])
def test_this_machine_alone_is_reached_on_loopback(host: str):
    assert is_loopback(host)
    checked_bind(host, accounts=0, encrypted=False)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.168.1.5", "inbox.example.com", "127.1", "localhost.evil.example"]
)
def test_others_are_let_in_with_accounts_and_tls_only(host: str):
    with pytest.raises(UsageError, match="no account exists"):
        checked_bind(host, accounts=0, encrypted=True)
    with pytest.raises(UsageError, match="in clear"):
        checked_bind(host, accounts=1, encrypted=False)
    checked_bind(host, accounts=1, encrypted=True)


# --- cookies and places ----------------------------------------------------------------------------------------------


def test_the_cookie_is_out_of_reach_of_scripts_other_sites_and_other_hosts():
    secret = secrets.token_hex(32)
    cookie = session_cookie(OWN, secret)
    assert cookie.startswith(f"__Host-beforehand={secret}; Path=/; HttpOnly; SameSite=Lax; Max-Age=")
    assert cookie.endswith("; Secure")
    assert "Domain" not in cookie
    assert "; Max-Age=43200;" in cookie
    assert cookie_name(OWN, "away") == "__Host-beforehand-away"
    local = session_cookie("http://127.0.0.1:8080", secret)
    assert local.startswith("beforehand-8080=")
    assert "Secure" not in local
    assert "Max-Age=0" in ended_cookie(OWN)


@pytest.mark.parametrize(
    ("cookies", "value"),
    [
        ("beforehand-8080=abc", "abc"),
        ("a=b; beforehand-8080=abc; c=d", "abc"),
        ("beforehand-8080=abc; beforehand-8080=planted", ""),
        ("xbeforehand-8080=abc", ""),
        ("BEFOREHAND-8080=abc", ""),
        ("beforehand-8081=abc", ""),
        ("", ""),
        (";;;=;", ""),
    ],
)
def test_one_cookie_of_ours_is_presented_or_none(cookies: str, value: str):
    assert presented(cookies, "http://localhost:8080") == value
    assert cookie_name("http://localhost") == "beforehand-80"


@pytest.mark.parametrize("wanted", ["/", "/items/r-1/refund%231?x=1"])
def test_after_signing_in_one_goes_on_here(wanted: str):
    assert local_path(wanted) == wanted


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)", "",
     "/\n/evil.example", "/x\r\nSet-Cookie: a=b", "/é", "evil.example", "/\t/evil.example"],
)  # fmt: skip
def test_and_never_elsewhere(wanted: str):
    assert local_path(wanted) == "/"


# --- a trusted proxy -------------------------------------------------------------------------------------------------

NAMED = [(b"x-user", b"anna")]


def test_the_proxy_is_believed_and_nobody_else():
    proxy = TrustedProxy("X-User", ("192.0.2.1", "2001:db8::/32"))
    assert proxy.named("192.0.2.1", NAMED) == "anna"
    assert proxy.named("::ffff:192.0.2.1", NAMED) == "anna"
    assert proxy.named("2001:db8::9", NAMED) == "anna"
    for stranger in ("192.0.2.2", "127.0.0.1", "::1", "", "anna", "192.0.2.1, 10.0.0.1", "2001:db9::1"):
        assert proxy.named(stranger, NAMED) is None


def test_two_names_are_none():
    proxy = TrustedProxy("x-user", ("192.0.2.1",))
    assert proxy.named("192.0.2.1", [*NAMED, (b"X-User", b"eve")]) == ""
    assert proxy.named("192.0.2.1", []) == ""


def test_on_loopback_the_proxy_shows_a_secret():
    secret = secrets.token_urlsafe(24)
    with pytest.raises(UsageError, match="every program"):
        TrustedProxy("x-user", ("127.0.0.1",))
    with pytest.raises(UsageError, match="every program"):
        TrustedProxy("x-user", ("127.0.0.0/8",))
    for wide in (("10.0.0.5", "127.0.0.1"), ("0.0.0.0/1",), ("::/1",), ("::1",)):
        with pytest.raises(UsageError, match="every program"):
            TrustedProxy("x-user", wide)
    proxy = TrustedProxy("x-user", ("127.0.0.1",), secret)
    shown = (b"X-Beforehand-Proxy", secret.encode())
    assert proxy.named("127.0.0.1", NAMED) is None
    assert proxy.named("127.0.0.1", [*NAMED, (b"x-beforehand-proxy", b"wrong")]) is None
    assert proxy.named("127.0.0.1", [*NAMED, shown, (b"x-beforehand-proxy", b"wrong")]) is None
    assert proxy.named("127.0.0.1", [*NAMED, (b"x-beforehand-proxy", b"\xff")]) is None
    assert proxy.named("127.0.0.1", [*NAMED, shown]) == "anna"


@pytest.mark.parametrize(
    "peers", [(), ("0.0.0.0/0",), ("::/0",), ("10.0.0.1", "0.0.0.0/0"), ("proxy.example",), ("10.0.0.1/8",)]
)
def test_a_proxy_is_one_that_is_named(peers: tuple[str, ...]):
    with pytest.raises(UsageError):
        TrustedProxy("x-user", peers)


def test_a_short_secret_is_none():
    with pytest.raises(UsageError, match="24"):
        TrustedProxy("x-user", ("10.0.0.1",), "s" * 23)
    assert TrustedProxy("x-user", ("10.0.0.1",), "s" * 24)


def test_only_the_proxy_says_who_stands_behind_it():
    proxy = TrustedProxy("x-user", ("192.0.2.1",))
    forwarded = [(b"X-Forwarded-For", b"1.1.1.1, 198.51.100.9")]
    assert proxy.address("192.0.2.1", forwarded) == "198.51.100.9"
    assert proxy.address("192.0.2.1", [*forwarded, (b"x-forwarded-for", b"203.0.113.5")]) == "203.0.113.5"
    assert proxy.address("203.0.113.7", forwarded) == "203.0.113.7"
    for nonsense in (b"", b"unknown", b"198.51.100.9:4711", b"<script>" * 99):
        assert proxy.address("192.0.2.1", [(b"x-forwarded-for", nonsense)]) == "192.0.2.1"


def test_a_proxy_that_names_nobody_still_says_who_stands_behind_it():
    proxy = TrustedProxy("", ("192.0.2.1",))
    assert proxy.named("192.0.2.1", [*NAMED, (b"", b"anna")]) is None
    assert proxy.address("192.0.2.1", [(b"x-forwarded-for", b"198.51.100.9")]) == "198.51.100.9"
