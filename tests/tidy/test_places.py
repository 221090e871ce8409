"""Nothing in the project names the machine it was written on, or where its packages came from."""

import re

import pytest

from tests.tidy.tree import shown, text_files

# Spelled so that this file does not match itself.
MACHINE_PATHS = r"(?<![\w.$}~*/-])/(?:home|mnt|opt|root|shared|srv|tmp|work|Users)(?:/[\w.]|\b(?=['\"`\s]))"
BESIDE_THE_PROJECT = r"\.\./shared\b"
FILE_ADDRESSES = r"\bfile:/[/]"
PACKAGE_INDEXES = r"--(?:extra-)?index-ur[l]|--find-link[s]|\bpypi\.org/simpl[e]|\bindex-ur[l]\s*="
FORBIDDEN = re.compile(f"{MACHINE_PATHS}|{BESIDE_THE_PROJECT}|{FILE_ADDRESSES}|{PACKAGE_INDEXES}")


def test_no_file_names_a_machine_or_an_index():
    found = [
        f"{shown(path)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if FORBIDDEN.search(line)
    ]
    assert not found, "use a relative path, a temporary directory or an example name:\n" + "\n".join(found)


@pytest.mark.parametrize("place", ["home/me/x.db", "opt/tool", "tmp/run.db", "work/main"])
def test_a_machine_path_is_found(place: str):
    assert FORBIDDEN.search(f"open('/{place}')")
    assert FORBIDDEN.search(f"see /{place}.")


@pytest.mark.parametrize(
    "line",
    ["sqlite file:" + "//x", "pip install --index-" + "url https://example.com", "../" + "shared/page"],
)
def test_other_addresses_are_found(line: str):
    assert FORBIDDEN.search(line)


@pytest.mark.parametrize("line", ["src/work/x", "https://example.com/home/page", "$TMPDIR/tmp/x", "/runs/{id}"])
def test_what_is_relative_or_a_route_is_not(line: str):
    assert not FORBIDDEN.search(line)
