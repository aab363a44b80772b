"""The official SDK of MCP for Python, over HTTP and over stdio."""

# page
import httpx2 as httpx
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult


async def decide(context, params):
    """Asks the user of this program. `params.message` is the question, `params.requested_schema` the form."""
    return ElicitResult(action="accept", content={"approved": True})


async def call_tool(server, tool, arguments, **options):
    """Calls a tool of `http://127.0.0.1:8234/mcp`, or of the program `sinew mcp`."""
    async with Client(server, elicitation_callback=decide, read_timeout_seconds=600) as client:
        return await client.call_tool(tool, arguments, **options)


async def greet(server, name):
    result = await call_tool(server, "greet", {"name": name})
    return result.structured_content  # {"text": "Hello Ada", ...}


def with_key(gateway, key):
    http = httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=600)
    return streamable_http_client(f"{gateway}/mcp", http_client=http)
# end page

import base64
import os
from mcp import StdioServerParameters
from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, TABLE_BYTES, causes, cell, check, fill, refuses


HTTP = f"{GATEWAY}/mcp"
STDIO = StdioServerParameters(command=os.environ["SINEW_PROGRAM"], args=["mcp", "--dev", os.environ["SINEW_FOLDER"]])
SERVERS = [HTTP, STDIO]


@cell("discover")
async def discover():
    for server in SERVERS:
        async with Client(server) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            check("greet" in tools and "Greeter" in tools, tools)


@cell("call")
async def call():
    for server in SERVERS:
        output = await greet(server, "Ada")
        check(output["text"] == "Hello Ada", output)


@cell("stream")
async def stream():
    for server in SERVERS:
        progress = []

        async def note(count, total, message):
            progress.append(message)

        await call_tool(server, "greet", {"name": "Ada"}, progress_callback=note)
        check(any("greet" in str(message) for message in progress), progress)


@cell("list")
async def list_tasks():
    for server in SERVERS:
        task = (await call_tool(server, "greet", {"name": "Ada"})).meta["io.github.sinew-mesh/task"]
        async with Client(server) as client:
            found = [str(resource.uri) for resource in (await client.list_resources()).resources]
            check(f"sinew://tasks/{task}" in found, found)


@cell("cancel")
async def cancel():
    import anyio

    for server in SERVERS:
        async with Client(server) as client:
            before = {str(resource.uri) for resource in (await client.list_resources()).resources}
            with anyio.move_on_after(3):
                await client.call_tool("sleep", {"seconds": 60})
            new = set()
            while not new:
                new = {str(one.uri) for one in (await client.list_resources()).resources} - before
                new = {uri for uri in new if "sleep" in str(await client.read_resource(uri))}
            while "TASK_STATE_CANCELED" not in str(await client.read_resource(list(new)[0])):
                pass


@cell("approval")
async def approval():
    for server in SERVERS:
        result = await call_tool(server, "ask", {"name": "Ada"})
        check(result.structured_content == {"text": "Hello Ada"}, result)


@cell("files out")
async def files_out():
    for server in SERVERS:
        async with Client(server) as client:
            content = (await client.call_tool("paint", {})).content
            [picture] = [one for one in content if one.type == "image"]
            check(base64.b64decode(picture.data).startswith(b"\x89PNG"), content)
            [table] = [one for one in content if one.type == "resource_link"]
            if server is HTTP:
                async with httpx.AsyncClient() as http:
                    size = len((await http.get(str(table.uri))).content)
            else:
                size = len((await client.read_resource(table.uri)).contents[0].text)
            check(size == TABLE_BYTES, size)


@cell("errors")
async def errors():
    for server in SERVERS:
        failed = await call_tool(server, "fail", {})
        check(failed.is_error and "fuse" in str(failed.content), failed)
        wrong = await call_tool(server, "greet", {"name": 7})
        check(wrong.is_error and "name" in str(wrong.content), wrong)
        try:
            await call_tool(server, "nosuch", {})
        except Exception as error:
            check("nosuch" in str(error) or "nosuch" in str(getattr(error, "exceptions", "")), error)
        else:
            check(False, "an unknown tool was called")


@cell("5 MB input")
async def large():
    output = await greet(HTTP, LARGE)
    check(output["length"] == len(LARGE), output)
    try:
        output = await greet(STDIO, LARGE)
    except BaseException as error:
        check("bytes" in str(causes(error)), causes(error))
    else:
        check(False, output)


@cell("keys")
async def keys():
    await refuses(greet(f"{KEYED_GATEWAY}/mcp", "Ada"))
    output = await greet(with_key(KEYED_GATEWAY, KEY), "Ada")
    check(output["text"] == "Hello Ada", output)


fill()
