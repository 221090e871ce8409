"""A server over a journal from which rows were removed: a revoked token stays revoked, and the reason is given."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx2

from tests.cli.lab import Lab


@contextmanager
def served(lab: Lab) -> Iterator[tuple[str, list[str]]]:
    """The address of `beforehand serve`, and what it said on standard error so far."""
    with lab.start("serve", "--port", "0") as process:
        said: list[str] = []
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            raise AssertionError("".join(said))
        try:
            yield found[0], said
        finally:
            process.terminate()
            assert process.wait(30) is not None


def asked(address: str, token: str) -> httpx2.Response:
    return httpx2.get(f"{address}/api/v1/items", headers={"authorization": f"Bearer {token}"}, timeout=30)


def test_a_revoked_token_stays_revoked_when_its_revocation_is_removed_from_the_file(beforehand: Lab):
    assert beforehand("accounts", "add", "ben", "--role", "answerer").status == 0
    token = beforehand("accounts", "token", "add", "ben").out.strip()
    with served(beforehand) as (address, _):
        assert asked(address, token).status_code == 200
    id_ = beforehand("accounts", "token", "list", "ben", "--json").json["tokens"][0]["id"]
    assert beforehand("accounts", "token", "revoke", id_).status == 0
    with served(beforehand) as (address, _):
        assert asked(address, token).status_code == 401
    assert beforehand("accounts", "list").status == 0  # the anchor knows what the server wrote last
    with closing(sqlite3.connect(beforehand.journal)) as database:
        removed = database.execute("delete from ledger where body like '%revoke%' and stream like '%token%'")
        assert removed.rowcount == 1
        database.commit()
    with served(beforehand) as (address, said):
        refused = asked(address, token)
        assert refused.status_code == 503
        assert "1 of its records or ledger entries were removed" in refused.text
        assert "1 of its records or ledger entries were removed" in " ".join("".join(said).split())
    checked = beforehand("verify")
    assert (checked.status, "the log of ledger entries" in checked.out) == (4, True)
