"""FastMCP: its client."""

# page
from fastmcp import Client
from fastmcp.client.auth import BearerAuth


async def decide(message, response_type, params, context):
    """Asks the user of this program; `message` is the question."""
    return {"approved": True}


def client_of(gateway, key=None, **options):
    auth = BearerAuth(key) if key else None
    return Client(f"{gateway}/mcp", auth=auth, elicitation_handler=decide, timeout=600, **options)


async def greet(gateway, name, key=None):
    async with client_of(gateway, key) as client:
        return (await client.call_tool("greet", {"name": name})).structured_content
# end page

import asyncio
from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, cell, check, fill, refuses


@cell("discover")
async def discover():
    async with client_of(GATEWAY) as client:
        tools = [tool.name for tool in await client.list_tools()]
        check("greet" in tools, tools)


@cell("call")
async def call():
    output = await greet(GATEWAY, "Ada")
    check(output["text"] == "Hello Ada", output)


@cell("stream")
async def stream():
    progress = []

    async def note(count, total, message):
        progress.append(message)

    async with client_of(GATEWAY, progress_handler=note) as client:
        await client.call_tool("greet", {"name": "Ada"})
    check(any("greet" in str(message) for message in progress), progress)


@cell("list")
async def list_tasks():
    async with client_of(GATEWAY) as client:
        task = (await client.call_tool("greet", {"name": "Ada"})).meta["io.github.sinew-mesh/task"]
        found = [str(resource.uri) for resource in await client.list_resources()]
        check(f"sinew://tasks/{task}" in found, found)


@cell("cancel")
async def cancel():
    async with client_of(GATEWAY) as client:
        before = {str(resource.uri) for resource in await client.list_resources()}
        call = asyncio.create_task(client.call_tool("sleep", {"seconds": 60}))
        new = set()
        while not new:
            new = {str(one.uri) for one in await client.list_resources()} - before
            new = {uri for uri in new if "sleep" in str(await client.read_resource(uri))}
        call.cancel()
        while "TASK_STATE_CANCELED" not in str(await client.read_resource(list(new)[0])):
            pass


@cell("approval")
async def approval():
    async with client_of(GATEWAY) as client:
        result = await client.call_tool("ask", {"name": "Ada"})
        check(result.structured_content == {"text": "Hello Ada"}, result)


@cell("files out")
async def files_out():
    async with client_of(GATEWAY) as client:
        content = (await client.call_tool("paint", {})).content
        check([one for one in content if one.type == "image"], content)
        [table] = [one for one in content if one.type == "resource_link"]
        check(str(table.uri).startswith("http://"), table)


@cell("errors")
async def errors():
    async with client_of(GATEWAY) as client:
        for tool, arguments, told in (("fail", {}, "fuse"), ("greet", {"name": 7}, "name"), ("nosuch", {}, "nosuch")):
            try:
                await client.call_tool(tool, arguments)
            except Exception as error:
                check(told in str(error), error)
            else:
                check(False, f"{tool} succeeded")


@cell("5 MB input")
async def large():
    output = await greet(GATEWAY, LARGE)
    check(output["length"] == len(LARGE), output)


@cell("keys")
async def keys():
    await refuses(greet(KEYED_GATEWAY, "Ada"))
    output = await greet(KEYED_GATEWAY, "Ada", KEY)
    check(output["text"] == "Hello Ada", output)


fill()
