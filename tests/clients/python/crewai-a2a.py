"""CrewAI: delegation to a workflow as a remote A2A agent."""

import os

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["OTEL_SDK_DISABLED"] = "true"

# page
from crewai.a2a.auth.client_schemes import BearerTokenAuth
from crewai.a2a.utils.delegation import aexecute_a2a_delegation


def card_of(gateway, name):
    return f"{gateway}/agents/{name}/.well-known/agent-card.json"


async def delegate(endpoint, task, key=None, task_id=None):
    """Does what an agent with `a2a=A2AClientConfig(endpoint=..., auth=...)` does when it delegates."""
    auth = BearerTokenAuth(token=key) if key else None
    return await aexecute_a2a_delegation(
        endpoint=endpoint, auth=auth, timeout=600, task_description=task, task_id=task_id
    )


def text_of(result):
    return result.get("result") or result.get("error")
# end page

from crewai.a2a.utils.agent_card import afetch_agent_card
from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.a2a_events import A2AStreamingStartedEvent
from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, cell, check, fill, refuses


async def told(*arguments, **options):
    result = await delegate(*arguments, **options)
    return result["status"].value, text_of(result)


async def greet(gateway, name, key=None):
    return await told(card_of(gateway, "greet"), name, key)


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
    chunks = []
    with crewai_event_bus.scoped_handlers():

        @crewai_event_bus.on(A2AStreamingStartedEvent)
        def note(source, event):
            chunks.append(event)

        state, text = await told(card_of(GATEWAY, "sleep"), '{"seconds": 2}')
    check(state == "completed" and "slept" in text and chunks, state, text, chunks)


@cell("approval")
async def approval():
    result = await delegate(card_of(GATEWAY, "ask"), "Ada")
    check(result["status"].value == "input-required" and "Greet Ada?" in text_of(result), result)
    task = result["history"][-1].task_id
    state, text = await told(card_of(GATEWAY, "ask"), "yes", task_id=task)
    check(state == "completed" and "Hello Ada" in text, state, text)


@cell("errors")
async def errors():
    state, text = await told(card_of(GATEWAY, "fail"), "{}")
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
