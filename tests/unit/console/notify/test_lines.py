"""The lines that notices leave by: encrypted mail, passwords, and whatever Apprise reaches."""

import json
import logging
import os
import ssl
from typing import Any

import pytest
import trustme

from beforehand.engine.current_operation import AT, CurrentOperation
from beforehand.errors import Ambiguous, NotSent
from beforehand.testing import operation
from beforehand_console import Apprise, Mail
from beforehand_console.notify.channel import SendContext
from beforehand_console.notify.compose import Letter, LetterLine
from tests.unit.console.notify.offices import post_office
from tests.unit.webhooks.receiver import DIES, receiving

LETTER = Letter(
    0, (LetterLine("t-1/refund#1", "approval", "new", "may it? see evil.com", "d1", answers=("beforehand inbox",)),)
)
INSIDE = SendContext("marker@beforehand.invalid", lambda _line: "", private=True, clock_s=0)
PASSWORD = os.urandom(8).hex()
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # a plugin of Apprise


@pytest.fixture
def trusted(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's side of an encryption that this process trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def strange() -> ssl.SSLContext:
    """An untrusted one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


def mail(server: str, **settings: Any) -> Mail:
    return Mail(to="ann@example.com", sender="desk@example.com", server=server, **settings)


def test_a_mail_is_encrypted_and_signed_in_for_unless_said_otherwise(trusted: ssl.SSLContext):
    with post_office(starttls=trusted) as office, operation():
        office.password = PASSWORD
        assert mail(office.server, user="desk", password=PASSWORD).send(LETTER, INSIDE) == "250"
        assert (office.encrypted, office.signed_in) == ([True], ["desk"])
    with post_office(implicit=trusted) as office, operation():
        office.password = PASSWORD
        assert mail(office.server, user="desk", password=PASSWORD, tls="implicit").send(LETTER, INSIDE) == "250"
        assert (office.encrypted, office.signed_in) == ([True], ["desk"])


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_nothing_is_said_to_a_server_that_nobody_vouches_for(strange: ssl.SSLContext, tls: str):
    given = {"starttls": strange} if tls == "starttls" else {"implicit": strange}
    with post_office(**given) as office, operation():
        office.password = PASSWORD
        with pytest.raises(NotSent) as told:
            mail(office.server, user="desk", password=PASSWORD, tls=tls).send(LETTER, INSIDE)
        assert (office.tried, office.signed_in) == (0, [])
    assert PASSWORD not in str(told.value)


def test_a_server_that_offers_no_encryption_gets_no_message():
    with post_office() as office, operation(), pytest.raises(NotSent):
        mail(office.server).send(LETTER, INSIDE)
    assert office.tried == 0


def test_a_password_that_is_refused_is_waited_for_and_not_repeated(trusted: ssl.SSLContext):
    with (
        post_office(starttls=trusted) as office,
        operation(),
        pytest.raises(NotSent, match="refused the password") as told,
    ):
        mail(office.server, user="desk", password=PASSWORD).send(LETTER, INSIDE)
    assert told.value.retry_after == 600
    assert PASSWORD not in str(told.value)
    assert office.tried == 0


def test_nothing_is_sent_after_the_time_for_it_is_over():
    with post_office() as office:
        late = CurrentOperation("r", "s", "t", 1, left_ms=lambda: 0, key=lambda: "k")
        token = AT.set(late)
        try:
            with pytest.raises(NotSent):
                mail(office.server, tls="none").send(LETTER, INSIDE)
        finally:
            AT.reset(token)
    assert office.tried == 0


# --- Apprise -------------------------------------------------------------------------------------------


def plain_receiver(slack: Any, status: int) -> None:
    slack.take = lambda headers, body: (slack.came.append((headers, body)), status)[1]


def address(url: str) -> str:
    return url.replace("http://", "json://") + f"/{PASSWORD}"


def test_whatever_apprise_reaches_is_told_in_plain_text():
    with receiving() as pager, operation():
        plain_receiver(pager, 200)
        assert Apprise(address(pager.url)).send(LETTER, INSIDE) == "taken"
    ((_, body),) = pager.came
    said = json.loads(body)
    assert said["title"] == "Beforehand: approval t-1/refund#1"
    assert "evil[.]com" in said["message"]


@pytest.mark.parametrize("status", [404, 500, DIES])
def test_what_apprise_says_no_more_about_nobody_can_tell(status: int, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    with receiving() as pager, operation():
        plain_receiver(pager, status)
        with pytest.raises(Ambiguous) as told:
            Apprise(address(pager.url)).send(LETTER, INSIDE)
    assert len(pager.came) == 1, "it is not repeated behind our back"
    assert PASSWORD not in str(told.value) + caplog.text


def test_an_address_of_apprise_that_leads_inside_is_refused_unless_allowed():
    with receiving() as pager, operation():
        with pytest.raises(NotSent, match="private"):
            Apprise(address(pager.url)).send(LETTER, INSIDE._replace(private=False))
        assert pager.came == []
        for manners in ("?retry=3", "?optional=yes"):
            with pytest.raises(NotSent, match="retry= or optional="):
                Apprise(address(pager.url) + manners).send(LETTER, INSIDE)
        assert pager.came == []
        with pytest.raises(NotSent, match="does not know"):
            Apprise("nowhere://").send(LETTER, INSIDE)
