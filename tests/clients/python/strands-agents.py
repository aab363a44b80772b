"""Strands Agents: a workflow as a remote A2A agent."""

# page
import httpx
from a2a.client import ClientConfig
from strands.agent.a2a_agent import A2AAgent


async def greet(gateway, name, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(timeout=600, headers=headers) as http:
        agent = A2AAgent(f"{gateway}/agents/greet", client_config=ClientConfig(httpx_client=http))
        result = await agent.invoke_async(name)  # the text is the only string that the workflow needs
        return str(result)
# end page

from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, cell, check, fill, refuses


@cell("discover")
async def discover():
    card = await A2AAgent(f"{GATEWAY}/agents/greet").get_agent_card()
    check(card.name == "greet", card)


@cell("call")
async def call():
    text = await greet(GATEWAY, "Ada")
    check("Hello Ada" in text, text)


@cell("stream")
async def stream():
    events = [event async for event in A2AAgent(f"{GATEWAY}/agents/greet").stream_async("Ada")]
    check(len(events) > 2 and "Hello Ada" in str(events[-1]["result"]), events)


@cell("errors")
async def errors():
    result = await A2AAgent(f"{GATEWAY}/agents/fail").invoke_async("{}")
    check("fuse" in str(result), result)


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
