"""The official SDK of A2A for Python, version 0.3."""

# page
import uuid
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import DataPart, Message, Part, Role


async def client_of(http, gateway, agent, streaming=False, wait=True):
    card = await A2ACardResolver(http, f"{gateway}/agents/{agent}").get_agent_card()
    config = ClientConfig(httpx_client=http, streaming=streaming, polling=not wait)
    return ClientFactory(config).create(card)


async def send(client, part, task_id=None):
    message = Message(message_id=str(uuid.uuid4()), role=Role.user, task_id=task_id, parts=[Part(root=part)])
    return [event async for event in client.send_message(message)]


async def greet(http, gateway, name):
    client = await client_of(http, gateway, "greet")
    [(task, _)] = await send(client, DataPart(data={"name": name}))
    return task.artifacts[-1].parts[0].root.data  # {"text": "Hello Ada", ...}
# end page

import base64
import httpx
from a2a.types import FilePart, FileWithBytes, TaskIdParams, TaskQueryParams, TextPart
from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, TABLE_BYTES, cell, check, fill, refuses


def http(**options):
    return httpx.AsyncClient(timeout=60, **options)


@cell("discover")
async def discover():
    async with http() as client:
        card = await A2ACardResolver(client, GATEWAY).get_agent_card()
        check("greet" in [skill.id for skill in card.skills], card)


@cell("call")
async def call():
    async with http() as client:
        output = await greet(client, GATEWAY, "Ada")
        check(output["text"] == "Hello Ada", output)


@cell("stream")
async def stream():
    async with http() as client:
        events = await send(await client_of(client, GATEWAY, "greet", streaming=True), DataPart(data={"name": "Ada"}))
        check(len(events) > 1 and events[-1][0].status.state == "completed", events)


@cell("resubscribe")
async def resubscribe():
    async with http() as client:
        sleeper = await client_of(client, GATEWAY, "sleep", wait=False)
        [(task, _)] = await send(sleeper, DataPart(data={"seconds": 3}))
        sleeper = await client_of(client, GATEWAY, "sleep", streaming=True)
        events = [event async for event in sleeper.resubscribe(TaskIdParams(id=task.id))]
        check(events[-1][0].status.state == "completed", events)


@cell("cancel")
async def cancel():
    async with http() as client:
        sleeper = await client_of(client, GATEWAY, "sleep", wait=False)
        [(task, _)] = await send(sleeper, DataPart(data={"seconds": 60}))
        await sleeper.cancel_task(TaskIdParams(id=task.id))
        while (task := await sleeper.get_task(TaskQueryParams(id=task.id))).status.state in ("submitted", "working"):
            pass
        check(task.status.state == "canceled", task)


@cell("approval")
async def approval():
    async with http() as client:
        asker = await client_of(client, GATEWAY, "ask", streaming=True)
        events = await send(asker, DataPart(data={"name": "Ada"}))
        check(events[-1][0].status.state == "input-required", events)
        events = await send(asker, TextPart(text="yes"), task_id=events[-1][0].id)
        check(events[-1][0].status.state == "completed", events)


@cell("files in")
async def files_in():
    async with http() as client:
        content = base64.b64encode(b"abc").decode()
        part = FilePart(file=FileWithBytes(bytes=content, name="a.bin", mime_type="application/octet-stream"))
        [(task, _)] = await send(await client_of(client, GATEWAY, "count"), part)
        check(task.artifacts[-1].parts[0].root.data["sizes"] == {"a.bin": 3}, task)


@cell("files out")
async def files_out():
    async with http() as client:
        [(task, _)] = await send(await client_of(client, GATEWAY, "paint"), DataPart(data={}))
        files = [part.root.file for artifact in task.artifacts for part in artifact.parts if part.root.kind == "file"]
        files = {file.name: file for file in files}
        check(base64.b64decode(files["dot.png"].bytes).startswith(b"\x89PNG"), files)
        table = (await client.get(files["table.csv"].uri)).content
        check(len(table) == TABLE_BYTES, len(table))


@cell("errors")
async def errors():
    async with http() as client:
        failing = await client_of(client, GATEWAY, "fail")
        [(task, _)] = await send(failing, DataPart(data={}))
        check(task.status.state == "failed" and "fuse" in str(task), task)
        try:
            await failing.get_task(TaskQueryParams(id="unknown"))
        except Exception as error:
            check("not found" in str(error), type(error), error)
        else:
            check(False, "an unknown task was found")


@cell("5 MB input")
async def large():
    async with http() as client:
        output = await greet(client, GATEWAY, LARGE)
        check(output["length"] == len(LARGE), output)


@cell("keys")
async def keys():
    async with http() as client:
        await refuses(client_of(client, KEYED_GATEWAY, "greet"))
    async with http(headers={"Authorization": f"Bearer {KEY}"}) as client:
        output = await greet(client, KEYED_GATEWAY, "Ada")
        check(output["text"] == "Hello Ada", output)


fill()
