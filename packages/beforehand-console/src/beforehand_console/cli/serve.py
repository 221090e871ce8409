"""`beforehand serve`: the inbox in a browser, and the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from beforehand.agent.agent import gather_agents, gather_tools
from beforehand.cli.apps import load_agents
from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.config import project_file
from beforehand.control.queues import declarations_of, declare_limits
from beforehand.control.service import ControlService
from beforehand_console.web.server import ServerOptions, listen


@command(
    "serve",
    examples=(
        "beforehand serve",
        "beforehand serve desk.py:refund_desk --port 8800",
        "beforehand serve --origin https://inbox.example.com --proxy-header X-User",
    ),
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="On which port.")
@click.option("--origin", "origins", multiple=True, metavar="URL", help="An address that browsers use for it.")
@click.option("--cert", default="", metavar="FILE", help="A certificate with its chain, for TLS.")
@click.option("--key", default="", metavar="FILE", help="The key of that certificate, if it is in another file.")
@click.option("--proxy-header", default="", metavar="NAME", help="The header in which a trusted proxy names the user.")
@click.option("--proxy-peer", "proxy_peers", multiple=True, metavar="ADDRESS", help="That proxy, or its network.")
@click.option("--oidc-issuer", "issuer", default="", metavar="URL", help="An OpenID provider for signing in.")
@click.option(
    "--oidc-client", "client", default="beforehand", show_default=True, help="The client id at that provider."
)
@click.option(
    "--per-peer", default=64, show_default=True, metavar="N", type=click.IntRange(1), help="Connections per address."
)
@by_option
async def serve(call: CommandCall, targets: tuple[str, ...], by: str, **place: Any) -> None:
    """Show the inbox in a browser and serve the API, until interrupted.

    Without accounts it serves this machine only: open the link that is printed, and answer as
    --by. With accounts (`beforehand accounts add`) people sign in. Answers that need the
    code of an agent (a result, edited arguments) are applied here if a TARGET names that
    agent, and programs can submit its runs; a worker starts them.
    """
    agents, declared = gather_agents(load_agents(targets)), declarations_of(project_file("queues")).limits
    async with call.serving(gather_tools(agents.values(), ()), agents) as service:
        if service.engine.identity.trust == "distrustful":
            reason = service.engine.identity.reason
            call.screen.note(("Sign-in is closed: this journal is not trusted", "yellow"), f": {reason}.")
            call.screen.note("Next: beforehand doctor")
        elif agents and declared is not None:  # submissions are judged by the limits of this project, as everywhere
            for remark in await declare_limits(service.engine, declared):
                call.screen.note((remark, "yellow"))
        await listen(
            service, msgspec.convert(place, ServerOptions), by, lambda text: call.screen.note(f"The inbox: {text}")
        )


async def serve_beside(service: ControlService, port: int, by: str, tell: Callable[[str], None]) -> None:
    """Serve the inbox on this machine beside something else, until cancelled. Signals stay with the caller."""
    await listen(service, ServerOptions(port=port), by, tell, signals=False)
