"""The pytest plugin: `pytest` loads it when beforehand is installed. It imports nothing until it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from beforehand.engine.current_operation import CurrentOperation
    from beforehand.testing.world import World


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--beforehand-sigkill`."""
    parser.getgroup("beforehand").addoption(
        "--beforehand-sigkill",
        action="store_true",
        help="world.explore: perform each run in processes of its own, over a journal on disk, killed with SIGKILL",
    )


@pytest.fixture
def run_virtual() -> Callable[..., Any]:
    """`run_virtual(main())`: run a coroutine in virtual time, where a day passes at once."""
    from beforehand.testing import clock  # noqa: PLC0415 - a plugin that is not used costs nothing

    return clock.run_virtual


@pytest.fixture
def current_operation() -> Iterator[CurrentOperation]:
    """Run the test as the body of a tool: `current_operation()` answers, with the key `bh-test`."""
    from beforehand.testing.operation import operation  # noqa: PLC0415 - a plugin that is not used costs nothing

    with operation() as current:
        yield current


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """A world for agents: stubs, faults, virtual time, and a crash at every boundary (`world.explore`)."""
    from beforehand.testing.world import World  # noqa: PLC0415 - a plugin that is not used costs nothing

    return World(sigkill=bool(request.config.getoption("--beforehand-sigkill")))
