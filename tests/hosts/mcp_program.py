"""An MCP server with Beforehand's tools and runs: `python -m tests.hosts.mcp_program DIRECTORY`.

Both versions of the library are tested, in the environments of a framework that brings them.
"""

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from beforehand import Beforehand, Run, RunSuspended, agent, tool

if version("mcp").startswith("1."):
    from mcp.server.fastmcp import FastMCP as Server
    from mcp.shared.memory import create_connected_server_and_client_session

    def connected(server: Any) -> Any:
        return create_connected_server_and_client_session(server._mcp_server)
else:
    from mcp import Client
    from mcp.server.mcpserver import MCPServer as Server

    def connected(server: Any) -> Any:
        return Client(server)


SENT: list[str] = []


@tool
async def pay(to: str, cents: int) -> str:
    """Pay."""
    SENT.append(f"{to} {cents}")
    return f"paid {to}"


@tool(gate="true")
def pay_much(to: str, cents: int) -> str:
    """Pay much."""
    SENT.append(f"{to} {cents}")
    return f"paid {to}"


@agent(tools=[pay, pay_much])
async def order(run: Run, given: dict[str, Any]) -> str:
    return await (pay_much if given["cents"] > 1000 else pay)(given["to"], given["cents"])


async def main() -> None:
    desk = Beforehand(Path(sys.argv[1]) / "desk.db", agents=[order])
    server = Server("desk")
    server.add_tool(pay)
    server.add_tool(pay_much)

    async def pay_once(invoice: str, to: str, cents: int) -> str:
        """Pay an invoice, once."""
        try:
            return await desk.run(order, {"to": to, "cents": cents}, run_id=f"invoice-{invoice}")
        except RunSuspended as waits:
            return waits.message

    server.add_tool(pay_once)
    async with desk, connected(server) as client:

        async def call(name: str, **arguments: Any) -> str:
            return str((await client.call_tool(name, arguments)).content[0].text)

        offered = {one.name: one for one in (await client.list_tools()).tools}
        shape = json.loads(offered["pay"].model_dump_json(by_alias=True))["inputSchema"]
        assert [part["type"] for part in shape["properties"].values()] == ["string", "integer"], shape
        for name in ("pay", "pay_much"):  # taken for what they are, and refused: a call of a server is in no run
            assert "Error executing tool" in await call(name, to="eve", cents=1)
        assert SENT == []
        assert [await call("pay_once", invoice="1", to="ann", cents=5) for _ in range(2)] == ["paid ann"] * 2
        assert "waits" in await call("pay_once", invoice="2", to="bob", cents=5000)
        await desk.service.approve("invoice-2/pay_much#1", by="eve")
        assert await call("pay_once", invoice="2", to="bob", cents=5000) == "paid bob"
    assert SENT == ["ann 5", "bob 5000"], SENT


asyncio.run(main())
