"""`beforehand accounts`: the first admin, roles, passwords that are never arguments, tokens that are shown once."""

import asyncio
import secrets
import sqlite3

import pytest

from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.webhooks.access_log import Access, AccessLog
from tests.cli.lab import Lab


@pytest.fixture
def staffed(beforehand: Lab) -> Lab:
    """A journal with an admin and an answerer."""
    assert beforehand("accounts", "add", "anna", "--role", "admin").status == 0
    assert beforehand("accounts", "add", "ben", "--role", "answerer", "--tool", "refund", "--queue", "eu").status == 0
    return beforehand


def stored(lab: Lab) -> str:
    """Everything in the file of the journal and beside it, as text."""
    files = [path for path in lab.directory.iterdir() if path.name.startswith("beforehand.db")]
    return "".join(path.read_bytes().decode("latin-1") for path in files)


def test_whoever_can_write_the_journal_adds_the_first_admin(beforehand: Lab):
    made = beforehand("accounts", "add", "anna", "--role", "admin")
    assert made.lines == ["anna  admin  no password"]
    assert "beforehand accounts password anna" in made.remarks
    assert beforehand("accounts", "list").lines == ["anna  admin  no password"]


def test_roles_are_given_added_and_listed(staffed: Lab):
    assert staffed("accounts", "list").lines[1] == "ben  answerer of refund in eu  no password"
    assert staffed("accounts", "role", "ben", "viewer", "--also").lines == [
        "ben  answerer of refund in eu; viewer  no password"
    ]
    changed = staffed("accounts", "role", "ben", "operator", "--json").json
    assert changed["grants"] == [{"role": "operator"}]
    assert staffed("accounts", "disable", "ben", "--why", "left").lines == ["ben  operator  disabled  no password"]
    assert staffed("accounts", "enable", "ben").status == 0
    assert staffed("accounts", "signout", "ben").status == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["add", "anna", "--role", "viewer"],
        ["add", "Eve", "--role", "viewer"],
        ["add", "eve"],
        ["add", "eve", "--role", "king"],
        ["add", "eve", "--role", "admin", "--tool", "refund"],
        ["role", "eve", "viewer"],
        ["disable", "eve"],
        ["password", "eve", "--stdin"],
        ["token", "add", "eve"],
        ["token", "add", "ben", "--days", "0"],
        ["token", "revoke", "0000"],
    ],
)
def test_what_cannot_be_is_refused_as_usage(staffed: Lab, wrong: list[str]):
    before = staffed("accounts", "list", "--json").json
    assert staffed("accounts", *wrong, given=secrets.token_hex(16)).status == 2
    assert staffed("accounts", "list", "--json").json == before


def test_a_password_is_piped_in_and_kept_as_a_hash(staffed: Lab):
    canary = secrets.token_hex(16)
    set_ = staffed("accounts", "password", "anna", "--stdin", given=canary + "\n")
    assert (set_.status, set_.lines) == (0, ["anna  admin"])
    assert canary not in stored(staffed) + set_.out + set_.err
    assert "$argon2id$" in stored(staffed)
    assert "$argon2id$" not in staffed("accounts", "list", "--json").out
    for bad in (b"canary-1", b"canary-1 \xff\xfe canary-1"):
        refused = staffed("accounts", "password", "anna", "--stdin", given=bad)
        assert (refused.status, "canary-1" in refused.out + refused.err) == (2, False)


def test_a_password_is_not_asked_for_where_nobody_can_type(staffed: Lab):
    asked = staffed("accounts", "password", "anna", given=secrets.token_hex(16))
    assert (asked.status, "--stdin" in asked.err) == (2, True)


def test_a_token_is_shown_once(staffed: Lab):
    made = staffed("accounts", "token", "add", "ben", "--days", "3", "--tool", "refund", "--note", "his\x1b[2J phone")
    secret = made.out.strip()
    assert secret.startswith("bh_")
    assert secret[3:] not in stored(staffed)
    listed = staffed("accounts", "token", "list").out
    assert "his\\x1b[2J phone" in listed
    assert secret not in listed
    assert "No tokens" in staffed("accounts", "token", "list", "anna").out
    id_ = staffed("accounts", "token", "list", "ben", "--json").json["tokens"][0]["id"]
    assert id_ in made.err
    assert "revoked" in staffed("accounts", "token", "revoke", id_).out
    as_json = staffed("accounts", "token", "add", "ben", "--json").json
    assert set(as_json) == {"id", "account", "secret", "ends_ms"}


def test_every_word_is_in_a_chain_of_its_own(staffed: Lab):
    staffed("accounts", "role", "ben", "viewer", "--by", "anna")
    with sqlite3.connect(staffed.journal) as database:
        bodies = [body for (body,) in database.execute("select body from ledger where stream = 'accounts/ben'")]
    assert len(bodies) == 2
    assert '"by":"anna"' in bodies[1]
    assert staffed("verify").status == 0


def test_the_record_of_access_is_shown(staffed: Lab):
    assert staffed("accounts", "audit").lines == ["Nothing was decided."]

    async def decide() -> None:
        journal = SqliteJournal(staffed.journal)
        await journal.open()
        log = AccessLog(journal)
        await log.note(Access("answer", allowed=True, who="ben", via="token", about="r-1/refund\x1b#1"))
        await log.note(Access("tune", allowed=False, who="ben", via="password", why="that takes the role admin"))
        await log.note(Access("sign in", allowed=False, why="not accepted", address="192.0.2.7"))
        await journal.close()

    asyncio.run(decide())
    shown = staffed("accounts", "audit").lines
    assert [line.split("  ", 1)[1] for line in shown] == [
        "allowed  ben: answer r-1/refund\\x1b#1  by token",
        "refused  ben: tune  that takes the role admin  by password",
        "refused  a stranger: sign in  not accepted  192.0.2.7",
    ]
    assert staffed("accounts", "audit", "ben", "--refused").out.count("refused") == 1
    assert "2 before these" in staffed("accounts", "audit", "--limit", "1").err
    assert [one["who"] for one in staffed("accounts", "audit", "--json").json["access"]] == ["ben", "ben", ""]
    assert len(staffed("accounts", "audit", "-").lines) == 1


def test_each_command_shows_how_it_is_called(beforehand: Lab):
    for words in ([], ["add"], ["list"], ["role"], ["password"], ["token"], ["token", "add"], ["token", "revoke"]):
        shown = beforehand("accounts", *words, "--help")
        assert (shown.status, "beforehand accounts" in shown.out.split("Examples:")[1]) == (0, True)
