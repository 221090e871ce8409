"""The interpreters of frameworks and of other foreign programs: each has an environment of its own."""

import functools
import sys

import pytest

from scripts.environment import python_in

ENVIRONMENT_OF = {
    "loop": "dev",
    "pydantic_ai": "dev",
    "langchain": "hosts",
    "openai_agents": "hosts",
    "google_adk": "hosts",
    "crewai": "host-crewai",
}
"""Where the newest supported version of each host is."""


@functools.cache
def python_of(environment: str) -> str:
    """The interpreter of this environment. Tests make none: `make test` and `make deep` do that before they begin.

    Where it could not be made, its tests are skipped. In continuous integration, `scripts/environment.py --prepare`
    fails before them if the package index has the framework.
    """
    if environment == "dev":
        return sys.executable
    if python := python_in(environment):
        return str(python)
    pytest.skip(
        f"the environment '{environment}' is missing, or out of date. Next, with a network: "
        f"sh scripts/python scripts/environment.py {environment} true"
    )
