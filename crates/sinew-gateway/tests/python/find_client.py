"""Finds and calls tools of a large mesh with the official SDK of MCP (PyPI mcp), as a model would.

Usage: find_client.py ADDRESS < TASKS. TASKS is a JSON array of requests. Prints one JSON object: the sizes of what a model reads, and
the name of the tool that was called for each request."""

import asyncio
import json
import sys

from mcp import Client


async def main(address, tasks):
    async with Client(address, read_timeout_seconds=60) as client:
        tools = await client.list_tools()
        declared = [tool.model_dump(by_alias=True, exclude_none=True) for tool in tools.tools]
        sizes, called = [], []
        for task in tasks:
            found = await client.call_tool("find_tools", {"query": task, "limit": 5})
            sizes.append(len(json.dumps(found.structured_content)))
            first = found.structured_content["tools"][0]["name"]
            result = await client.call_tool("call_tool", {"tool": first, "arguments": {"value": task}})
            called.append(first if result.structured_content == {"value": task} else f"{first} failed")
        print(json.dumps({"listed": len(declared), "declared": len(json.dumps(declared)), "found": max(sizes), "called": called}))


asyncio.run(main(sys.argv[1], json.load(sys.stdin)))
