"""CrewAI: delegation to a workflow as a remote A2A agent."""

import os

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["OTEL_SDK_DISABLED"] = "true"

from crewai.a2a.auth.client_schemes import BearerTokenAuth
from crewai.a2a.utils.agent_card import afetch_agent_card
from crewai.a2a.utils.delegation import aexecute_a2a_delegation

from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, cell, check, fill, refuses


# page
def card_of(gateway, name):
    return f"{gateway}/agents/{name}/.well-known/agent-card.json"


async def delegate(endpoint, task, key=None):
    auth = BearerTokenAuth(token=key) if key else None
    result = await aexecute_a2a_delegation(endpoint=endpoint, auth=auth, timeout=600, task_description=task)
    return result["status"].value, result.get("result") or result.get("error")
# end page


async def greet(gateway, name, key=None):
    return await delegate(card_of(gateway, "greet"), name, key)


@cell("discover")
async def discover():
    card = await afetch_agent_card(card_of(GATEWAY, "greet"))
    check(card.name == "greet", card)


@cell("call")
async def call():
    state, text = await greet(GATEWAY, "Ada")
    check(state == "completed" and "Hello Ada" in text, state, text)


@cell("stream")
async def stream():
    # Streaming is the default of a delegation.
    state, text = await delegate(card_of(GATEWAY, "sleep"), '{"seconds": 2}')
    check(state == "completed" and "slept" in text, state, text)


@cell("approval")
async def approval():
    state, text = await delegate(card_of(GATEWAY, "ask"), "Ada")
    check(state in ("input-required", "input_required") and "Greet Ada?" in text, state, text)


@cell("files out")
async def files_out():
    state, text = await delegate(card_of(GATEWAY, "paint"), "{}")
    check(state == "completed" and "table.csv" in text, state, text)


@cell("errors")
async def errors():
    state, text = await delegate(card_of(GATEWAY, "fail"), "{}")
    check(state == "failed" and "fuse" in text, state, text)


@cell("5 MB input")
async def large():
    state, text = await greet(GATEWAY, LARGE)
    check(state == "completed" and str(len(LARGE)) in text, state, text)


@cell("keys")
async def keys():
    await refuses(greet(KEYED_GATEWAY, "Ada"))
    state, text = await greet(KEYED_GATEWAY, "Ada", KEY)
    check(state == "completed" and "Hello Ada" in text, state, text)


fill()
