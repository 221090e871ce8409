"""Secrets in a real journal: in no file beside it, in no export, and on no terminal."""

import os
import secrets

from tests.cli.lab import Lab

DESK = """
import os
from beforehand import Run, Secret, agent, tool

@tool(redact={"card"})
def charge(card: str, key: Secret) -> dict[str, str]:  # in a thread
    if os.environ.get("FAILS"):
        raise ConnectionError(f"POST https://shop:{key.reveal()}@bank.example.com/ with {card} failed")
    return {"receipt": "R-1", "seen": f"{card} {key.reveal()}"}

@agent(run_id="r-{name}", tools=[charge])
async def desk(run: Run, name: str) -> str:
    paid = await charge(os.environ["CARD"], Secret("bank-key"))
    if name == "raises":
        raise KeyError("{} {}".format(os.environ["CARD"], paid["seen"]))
    return paid["seen"]
"""


def test_nothing_that_is_secret_is_in_a_file_an_export_or_what_was_printed(beforehand: Lab):
    given = {"BANK_KEY": secrets.token_hex(12), "CARD": secrets.token_hex(12)}
    program = beforehand.directory / "shop.py"
    program.write_text(DESK)
    said: list[str] = []
    for name, more in (("ann", {}), ("raises", {}), ("fails", {"FAILS": "1"})):
        ran = beforehand.apart("run", "shop.py:desk", f'"{name}"', **given, **more)
        assert ran.status == {"ann": 0, "raises": 1, "fails": 3}[name], ran.err
        commands = (["show", f"r-{name}"], ["why", f"r-{name}/charge#1"], ["export", f"r-{name}", "-o", f"{name}.json"])
        said += [ran.out, ran.err]
        for command in (*commands, ["ps"], ["inbox"]):
            shown = beforehand(*command)
            said += [shown.out, shown.err]
    files = [path for path in beforehand.directory.iterdir() if path.is_file()]
    assert {"ann.json", "fails.json", "beforehand.db"} <= {path.name for path in files}
    kept = b"".join(path.read_bytes() for path in files) + "".join(said).encode()
    for value in given.values():
        assert value.encode() not in kept
    assert "KeyError: '[masked] [masked] [masked]'" in "".join(said)
    assert b"POST https://shop:[masked]@bank.example.com/ with [masked] failed" in kept
    assert os.environ.get("CARD") is None
