"""The official SDK of A2A for Python, version 1.x."""

# page
import uuid
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as a2a
from google.protobuf import json_format


async def client_of(http, gateway, agent, streaming=False):
    card = await A2ACardResolver(http, f"{gateway}/agents/{agent}").get_agent_card()
    return ClientFactory(ClientConfig(streaming=streaming, httpx_client=http)).create(card)


async def send(client, *parts, task_id=None, wait=True):
    message = a2a.Message(message_id=str(uuid.uuid4()), role=a2a.Role.ROLE_USER, task_id=task_id, parts=parts)
    request = a2a.SendMessageRequest(message=message)
    request.configuration.return_immediately = not wait
    return [event async for event in client.send_message(request)]


def data(**members):
    part = a2a.Part()
    part.data.struct_value.SetInParent()  # also without members
    part.data.struct_value.update(members)
    return part


async def greet(http, gateway, name):
    [event] = await send(await client_of(http, gateway, "greet"), data(name=name))
    return json_format.MessageToDict(event.task.artifacts[-1].parts[0].data)  # {"text": "Hello Ada", ...}
# end page

import httpx
from cells import GATEWAY, KEY, KEYED_GATEWAY, LARGE, TABLE_BYTES, cell, check, fill, refuses


WORKING = (a2a.TaskState.TASK_STATE_SUBMITTED, a2a.TaskState.TASK_STATE_WORKING)


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
        events = await send(await client_of(client, GATEWAY, "greet", streaming=True), data(name="Ada"))
        state = events[-1].status_update.status.state or events[-1].task.status.state
        check(len(events) > 1 and state == a2a.TaskState.TASK_STATE_COMPLETED, events)


@cell("resubscribe")
async def resubscribe():
    async with http() as client:
        sleeper = await client_of(client, GATEWAY, "sleep", streaming=True)
        [begun] = await send(await client_of(client, GATEWAY, "sleep"), data(seconds=3), wait=False)
        events = [event async for event in sleeper.subscribe(a2a.SubscribeToTaskRequest(id=begun.task.id))]
        state = events[-1].status_update.status.state or events[-1].task.status.state
        check(state == a2a.TaskState.TASK_STATE_COMPLETED, events)


@cell("list")
async def list_tasks():
    async with http() as client:
        greeter = await client_of(client, GATEWAY, "greet")
        [event] = await send(greeter, data(name="Ada"))
        page = await greeter.list_tasks(a2a.ListTasksRequest(page_size=5))
        check(event.task.id in [task.id for task in page.tasks], page)


@cell("cancel")
async def cancel():
    async with http() as client:
        sleeper = await client_of(client, GATEWAY, "sleep")
        [begun] = await send(sleeper, data(seconds=60), wait=False)
        await sleeper.cancel_task(a2a.CancelTaskRequest(id=begun.task.id))
        while (task := await sleeper.get_task(a2a.GetTaskRequest(id=begun.task.id))).status.state in WORKING:
            pass
        check(task.status.state == a2a.TaskState.TASK_STATE_CANCELED, task)


@cell("approval")
async def approval():
    async with http() as client:
        asker = await client_of(client, GATEWAY, "ask", streaming=True)
        events = await send(asker, data(name="Ada"))
        task = next(event.task.id or event.status_update.task_id for event in events)
        state = events[-1].status_update.status.state or events[-1].task.status.state
        check(state == a2a.TaskState.TASK_STATE_INPUT_REQUIRED, events)
        events = await send(asker, a2a.Part(text="yes"), task_id=task)
        state = events[-1].status_update.status.state or events[-1].task.status.state
        check(state == a2a.TaskState.TASK_STATE_COMPLETED, events)


@cell("files in")
async def files_in():
    async with http() as client:
        counter = await client_of(client, GATEWAY, "count")
        part = a2a.Part(raw=b"abc", filename="a.bin", media_type="application/octet-stream")
        [event] = await send(counter, part)
        output = json_format.MessageToDict(event.task.artifacts[-1].parts[0].data)
        check(output["sizes"] == {"a.bin": 3}, output)


@cell("files out")
async def files_out():
    async with http() as client:
        [event] = await send(await client_of(client, GATEWAY, "paint"), data())
        files = {artifact.parts[0].filename: artifact.parts[0] for artifact in event.task.artifacts}
        check(files["dot.png"].raw.startswith(b"\x89PNG"), files)
        table = (await client.get(files["table.csv"].url)).content
        check(len(table) == TABLE_BYTES, len(table))


@cell("errors")
async def errors():
    async with http() as client:
        failing = await client_of(client, GATEWAY, "fail")
        [event] = await send(failing, data())
        check(event.task.status.state == a2a.TaskState.TASK_STATE_FAILED and "fuse" in str(event), event)
        try:
            await failing.get_task(a2a.GetTaskRequest(id="unknown"))
        except Exception as error:
            check(type(error).__name__ == "TaskNotFoundError", type(error), error)
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
