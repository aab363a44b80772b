"""OpenAI Agents SDK: the tools of a mesh as an MCP server."""

# page
from agents.mcp import MCPServerStreamableHttp


def mesh(gateway, key=None):
    """The server, for `Agent(mcp_servers=[...])`."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    params = {"url": f"{gateway}/mcp", "headers": headers, "timeout": 60}
    return MCPServerStreamableHttp(params, cache_tools_list=True, client_session_timeout_seconds=600)


async def call_tool(gateway, tool, arguments, key=None):
    async with mesh(gateway, key) as server:
        return await server.call_tool(tool, arguments)
# end page

import json
from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, cell, check, fill, refuses


@cell("discover")
async def discover():
    async with mesh(GATEWAY) as server:
        tools = [tool.name for tool in await server.list_tools()]
        check("greet" in tools, tools)


@cell("call")
async def call():
    result = await call_tool(GATEWAY, "greet", {"name": "Ada"})
    check(json.loads(result.content[0].text)["text"] == "Hello Ada", result)


@cell("list")
async def list_tasks():
    async with mesh(GATEWAY) as server:
        await server.call_tool("greet", {"name": "Ada"})
        found = [str(resource.uri) for resource in (await server.list_resources()).resources]
        check(any(uri.startswith("sinew://tasks/") for uri in found), found)


@cell("files out")
async def files_out():
    content = (await call_tool(GATEWAY, "paint", {})).content
    check([one for one in content if one.type == "image"], content)
    [table] = [one for one in content if one.type == "resource_link"]
    check(str(table.uri).startswith("http://"), table)


@cell("errors")
async def errors():
    failed = await call_tool(GATEWAY, "fail", {})
    check("fuse" in str(failed.content), failed)
    wrong = await call_tool(GATEWAY, "greet", {"name": 7})
    check("name" in str(wrong.content), wrong)


@cell("5 MB input")
async def large():
    result = await call_tool(GATEWAY, "greet", {"name": LARGE})
    check(json.loads(result.content[0].text)["length"] == len(LARGE), result)


@cell("keys")
async def keys():
    await refuses(call_tool(KEYED_GATEWAY, "greet", {"name": "Ada"}))
    result = await call_tool(KEYED_GATEWAY, "greet", {"name": "Ada"}, KEY)
    check("Hello Ada" in str(result.content), result)


fill()
