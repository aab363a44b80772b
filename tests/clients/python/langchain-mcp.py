"""LangChain: the tools of a mesh by langchain-mcp-adapters."""

# page
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from mcp.types import ElicitResult


async def decide(mcp_context, params, context):
    """Asks the user of this program; `params.message` is the question."""
    return ElicitResult(action="accept", content={"approved": True})


async def tools_of(gateway, key=None, **callbacks):
    """The tools of a mesh, for `create_agent(model, tools)`."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    mesh = {"transport": "streamable_http", "url": f"{gateway}/mcp", "headers": headers}
    client = MultiServerMCPClient({"mesh": mesh}, callbacks=Callbacks(on_elicitation=decide, **callbacks))
    return {tool.name: tool for tool in await client.get_tools()}


async def greet(gateway, name, key=None):
    tools = await tools_of(gateway, key)
    return (await tools["greet"].ainvoke({"name": name}))[0]["text"]  # '{"text": "Hello Ada", ...}'
# end page

import httpx
from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, TABLE_BYTES, cell, check, fill, refuses


def as_call(name, arguments):
    return {"type": "tool_call", "id": "1", "name": name, "args": arguments}


@cell("discover")
async def discover():
    tools = await tools_of(GATEWAY)
    check("greet" in tools and "name" in tools["greet"].args, list(tools))


@cell("call")
async def call():
    text = await greet(GATEWAY, "Ada")
    check("Hello Ada" in text, text)


@cell("stream")
async def stream():
    progress = []

    async def note(count, total, message, context):
        progress.append(message)

    tools = await tools_of(GATEWAY, on_progress=note)
    await tools["greet"].ainvoke({"name": "Ada"})
    check(any("greet" in str(message) for message in progress), progress)


@cell("approval")
async def approval():
    tools = await tools_of(GATEWAY)
    result = await tools["ask"].ainvoke({"name": "Ada"})
    check("Hello Ada" in str(result), result)


@cell("files out")
async def files_out():
    tools = await tools_of(GATEWAY)
    content = await tools["paint"].ainvoke({})
    check([one for one in content if one["type"] == "image"], content)
    [table] = [one for one in content if one["type"] == "file"]
    check(len(httpx.get(table["url"]).content) == TABLE_BYTES, table)


@cell("errors")
async def errors():
    tools = await tools_of(GATEWAY)
    for tool, arguments, told in (("fail", {}, "fuse"), ("greet", {"name": 7}, "name")):
        message = await tools[tool].ainvoke(as_call(tool, arguments))
        check(message.status == "error" and told in str(message.content), message)


@cell("5 MB input")
async def large():
    text = await greet(GATEWAY, LARGE)
    check(str(len(LARGE)) in text, text)


@cell("keys")
async def keys():
    await refuses(greet(KEYED_GATEWAY, "Ada"))
    text = await greet(KEYED_GATEWAY, "Ada", KEY)
    check("Hello Ada" in text, text)


fill()
