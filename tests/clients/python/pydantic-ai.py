"""Pydantic AI: the tools of a mesh as a toolset of an agent with a scripted model."""

# page
from mcp_types import ElicitResult
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset


async def decide(*question):
    """Asks the user of this program."""
    return ElicitResult(action="accept", content={"approved": True})


def mesh(gateway, key=None, **options):
    """The tools of a mesh, for `Agent(toolsets=[...])`."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return MCPToolset(f"{gateway}/mcp", headers=headers, elicitation_handler=decide, **options)


async def run(toolset, prompt, model):
    agent = Agent(model, toolsets=[toolset])
    async with agent:
        return (await agent.run(prompt)).output
# end page

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, cell, check, fill, refuses


def calls(tool, arguments):
    """A model that calls a tool, and answers with its result."""

    def next_step(messages, info):
        returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if returned:
            return ModelResponse([TextPart(str(returned[-1].content))])
        return ModelResponse([ToolCallPart(tool, arguments)])

    return FunctionModel(next_step)


@cell("discover")
async def discover():
    async with mesh(GATEWAY) as toolset:
        tools = [tool.name for tool in await toolset.list_tools()]
        check("greet" in tools, tools)


@cell("call")
async def call():
    text = await run(mesh(GATEWAY), "Greet Ada", calls("greet", {"name": "Ada"}))
    check("Hello Ada" in text, text)


@cell("stream")
async def stream():
    progress = []

    async def note(count, total, message):
        progress.append(message)

    await run(mesh(GATEWAY, progress_handler=note), "Greet Ada", calls("greet", {"name": "Ada"}))
    check(any("greet" in str(message) for message in progress), progress)


@cell("list")
async def list_tasks():
    async with mesh(GATEWAY) as toolset:
        await toolset.direct_call_tool("greet", {"name": "Ada"})
        found = [str(resource.uri) for resource in await toolset.list_resources()]
        check(any(uri.startswith("sinew://tasks/") for uri in found), found)


@cell("approval")
async def approval():
    text = await run(mesh(GATEWAY), "Greet Ada", calls("ask", {"name": "Ada"}))
    check("Hello Ada" in text, text)


@cell("files out")
async def files_out():
    async with mesh(GATEWAY) as toolset:
        content = await toolset.direct_call_tool("paint", {})
        text = str(content)
        check("image/png" in text and f"{GATEWAY}/files/" in text, content)


@cell("errors")
async def errors():
    async with mesh(GATEWAY, tool_error_behavior="error") as toolset:
        for tool, arguments, told in (("fail", {}, "fuse"), ("greet", {"name": 7}, "name")):
            try:
                await toolset.direct_call_tool(tool, arguments)
            except Exception as error:
                check(told in str(error), error)
            else:
                check(False, f"{tool} succeeded")


@cell("5 MB input")
async def large():
    async with mesh(GATEWAY) as toolset:
        output = await toolset.direct_call_tool("greet", {"name": LARGE})
        check(output["length"] == len(LARGE), output)


@cell("keys")
async def keys():
    await refuses(run(mesh(KEYED_GATEWAY), "Greet Ada", calls("greet", {"name": "Ada"})))
    text = await run(mesh(KEYED_GATEWAY, KEY), "Greet Ada", calls("greet", {"name": "Ada"}))
    check("Hello Ada" in text, text)


fill()
