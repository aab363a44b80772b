"""A server made with the Python SDK of MCP: sdk_server.py stdio, or sdk_server.py PORT for streamable HTTP."""

import os
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("sdk")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def secret() -> str:
    """Tells what stands in the environment."""
    return os.environ.get("TOKEN", "nothing")


if sys.argv[1] == "stdio":
    server.run()
else:
    server.run(transport="streamable-http", port=int(sys.argv[1]))
