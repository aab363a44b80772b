"""Google ADK: a workflow as a remote agent of a runner."""

# page
import httpx
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types


def remote(gateway, name, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    http = httpx.AsyncClient(timeout=600, headers=headers)
    card = f"{gateway}/agents/{name}/.well-known/agent-card.json"
    return RemoteA2aAgent(name=name, agent_card=card, httpx_client=http)


class Chat:
    """A conversation with a remote agent; the agent can be a sub-agent as well."""

    def __init__(self, agent):
        self.runner = InMemoryRunner(agent=agent, app_name="app")

    async def send(self, *parts):
        sessions = self.runner.session_service
        session = await sessions.get_session(app_name="app", user_id="ann", session_id="s")
        session = session or await sessions.create_session(app_name="app", user_id="ann", session_id="s")
        message = types.Content(role="user", parts=list(parts))
        events = self.runner.run_async(user_id="ann", session_id=session.id, new_message=message)
        return [event async for event in events]
# end page

from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, TABLE_BYTES, cell, check, fill


def shown(events):
    parts = [part for event in events for part in (event.content and event.content.parts or [])]
    return " ".join(str(part) for part in parts) + " ".join(event.error_message or "" for event in events)


async def ask(agent, text):
    return shown(await Chat(agent).send(types.Part(text=text)))


@cell("discover")
async def discover():
    agent = remote(GATEWAY, "greet")
    await agent._ensure_resolved()
    check(agent._agent_card.name == "greet", agent)


@cell("call")
async def call():
    text = await ask(remote(GATEWAY, "greet"), "Ada")
    check("Hello Ada" in text, text)


@cell("stream")
async def stream():
    events = await Chat(remote(GATEWAY, "greet")).send(types.Part(text="Ada"))
    check(len(events) > 1 and "Hello Ada" in shown(events), events)


@cell("approval")
async def approval():
    chat = Chat(remote(GATEWAY, "ask"))
    question = shown(await chat.send(types.Part(text="Ada")))
    check("Greet Ada?" in question, question)
    answer = shown(await chat.send(types.Part(text="yes")))
    check("Hello Ada" in answer, answer)


@cell("files in")
async def files_in():
    blob = types.Blob(data=b"abc", mime_type="application/octet-stream", display_name="a.bin")
    text = shown(await Chat(remote(GATEWAY, "count")).send(types.Part(inline_data=blob)))
    check("sizes" in text and "3" in text, text)


@cell("files out")
async def files_out():
    events = await Chat(remote(GATEWAY, "paint")).send(types.Part(text="{}"))
    parts = [part for event in events for part in (event.content and event.content.parts or [])]
    pictures = [part.inline_data for part in parts if part.inline_data]
    check(any(one.data.startswith(b"\x89PNG") for one in pictures), parts)
    [table] = {part.file_data.file_uri for part in parts if part.file_data}
    check(len(httpx.get(table).content) == TABLE_BYTES, table)


@cell("errors")
async def errors():
    text = await ask(remote(GATEWAY, "fail"), "{}")
    check("fuse" in text, text)


@cell("5 MB input")
async def large():
    text = await ask(remote(GATEWAY, "greet"), LARGE)
    check(str(len(LARGE)) in text, text)


@cell("keys")
async def keys():
    text = await ask(remote(KEYED_GATEWAY, "greet"), "Ada")
    check("401" in text, text)
    text = await ask(remote(KEYED_GATEWAY, "greet", KEY), "Ada")
    check("Hello Ada" in text, text)


fill()
