"""YAML that no person wrote, in each file that is read: a short error that says what is wrong, and no long wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from beforehand.control.queues import declarations_of
from beforehand.errors import UsageError
from beforehand.inspect.prices import price_list
from beforehand.people.policy.archive import cases_in
from beforehand.people.policy.policy_files import load_policy
from beforehand_console.notify.reach_file import load_reach

READERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "policy": (load_policy, "rules"),
    "queues": (declarations_of, "queues"),
    "prices": (price_list, "models"),
    "cases": (cases_in, "cases"),
    "reach": (load_reach, "channels"),
}
MERGES = "a: &a {" + ",".join(f"k{one}: 1" for one in range(50)) + "}\n" + "".join(
    f"m{one}: &m{one} {{<<: [{','.join([f'*m{one - 1}' if one else '*a'] * 30)}]}}\n" for one in range(4)
)  # fmt: skip
TEXTS = {
    "brackets": "{KEY}: " + "[" * 20_000 + "]" * 20_000,
    "a number": "{KEY}: " + "9" * 200_000,
    "a number in sixties": "{KEY}: " + ":".join(["59"] * 20_000),
    "a number in a list": "{KEY}: [" + "9" * 200_000 + "]",
    "a day that does not exist": "{KEY}: 2026-13-45",
    "a key": "? " + "k" * 1000 + "\n: 1\n",
    "a key below": "{KEY}: {" + "k" * 1000 + ": {x: 1}}",
    "a value": "{KEY}: " + "1." * 30_000,
    "a name": "{KEY}: [{name: " + "n" * 100_000 + "}]",
    "merges": MERGES + "{KEY}: *m3\n",
    "a reference to itself": "{KEY}: &a [*a]\n",
}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("text", TEXTS)
def test_what_no_person_wrote_is_a_short_error(kind: str, text: str, tmp_path: Path):
    read, key = READERS[kind]
    file = tmp_path / "it.yaml"
    file.write_text(TEXTS[text].replace("{KEY}", key))
    before = time.process_time()
    with pytest.raises(UsageError) as refused:
        read(file)
    assert len(str(refused.value)) < 1500
    assert time.process_time() - before < 10
