"""Calls tools with the official SDK of MCP (PyPI mcp): with and without a session, and with a user who is asked.

Usage: mcp_client.py ADDRESS, or mcp_client.py PROGRAM ARGUMENT…. Prints one JSON object per mode, and ends with an error if a
call does."""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult


async def decide(context, params):
    return ElicitResult(action="accept", content={"approved": True, "comment": params.message})


async def call(server, mode):
    progress = []

    async def on_progress(count, total, message):
        progress.append([count, message])

    async with Client(server, mode=mode, elicitation_callback=decide, read_timeout_seconds=60) as client:
        tools = await client.list_tools()
        single = await client.call_tool("single", {"value": "hello"}, progress_callback=on_progress)
        wrong = await client.call_tool("single", {"value": 7})
        review = await client.call_tool("review", {"text": "look"})
        try:
            await client.call_tool("unknown", {})
            unknown = "nothing"
        except MCPError as error:
            unknown = error.error.data
        task = single.meta["io.github.sinew-mesh/task"]
        read = await client.read_resource(f"sinew://tasks/{task}")
        templates = await client.list_resource_templates()
        return {
            "version": client.protocol_version,
            "tools": sorted(tool.name for tool in tools.tools),
            "single": single.structured_content,
            "text": single.content[0].text,
            "progress": progress,
            "wrong": [wrong.is_error, wrong.content[0].text],
            "review": [review.is_error, review.content[0].text],
            "unknown": unknown,
            "state": json.loads(read.contents[0].text)["status"]["state"],
            "templates": len(templates.resource_templates),
        }


async def main(words):
    server = words[0]
    if len(words) > 1:
        server = StdioServerParameters(command=words[0], args=words[1:])
    for mode in ("legacy", "2026-07-28", "auto"):
        print(json.dumps(await call(server, mode)), flush=True)


asyncio.run(main(sys.argv[1:]))
