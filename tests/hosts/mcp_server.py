"""An MCP server for hosts, on standard input and output: `python -m tests.hosts.mcp_server DIRECTORY CASE`.

Each payment is a line in the file `paid` of the directory.
"""

import os
import sys
from importlib.metadata import version
from pathlib import Path

if version("mcp").startswith("1."):
    from mcp.server.fastmcp import FastMCP as Server
else:
    from mcp.server.mcpserver import MCPServer as Server

server = Server("till")


@server.tool()
def pay(cents: int) -> str:
    """Pay."""
    with (Path(sys.argv[1]) / "paid").open("a") as paid:
        paid.write(f"{cents}\n")
    if "no answer" in sys.argv[2]:
        os._exit(1)
    if "error" in sys.argv[2]:
        raise ValueError("the till is broken")
    return f"paid {cents}"


if __name__ == "__main__":
    server.run("stdio")
