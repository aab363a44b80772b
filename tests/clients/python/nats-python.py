"""nats-py: the binding of A2A to NATS, without an SDK."""

# page
import json
import os
import uuid

OPTIONS = {"servers": os.environ["NATS_URL"], "user": os.environ["NATS_USER"], "password": os.environ["NATS_PASSWORD"]}
NAMESPACE, CALLER = os.environ["SINEW_NAMESPACE"], os.environ["NATS_USER"]


async def call(nc, agent, method, params, timeout=600):
    """Calls an operation of A2A; the name of the method is part of the subject."""
    subject = f"{NAMESPACE}.v1.rpc.{agent}.{method}.{CALLER}"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    reply = await nc.request(subject, json.dumps(body).encode(), timeout, headers={"A2A-Version": "1.0"})
    answer = json.loads(reply.data)
    if "error" in answer:
        raise RuntimeError(answer["error"]["message"])
    return answer["result"]


def message(*parts, task_id=None, **configuration):
    sent = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": list(parts)}
    return {"message": sent | ({"taskId": task_id} if task_id else {}), "configuration": configuration}


async def greet(nc, name):
    answer = await call(nc, "greet", "SendMessage", message({"data": {"name": name}}))
    return answer["task"]["artifacts"][-1]["parts"][0]["data"]  # {"text": "Hello Ada", ...}
# end page

import nats
from nats.errors import MaxPayloadError
from cells import LARGE, cell, check, fill

ENDED = ("COMPLETED", "FAILED", "CANCELED", "REJECTED", "INPUT_REQUIRED")


async def connect(**options):
    return await nats.connect(**OPTIONS | options)


def state(task):
    return task["status"]["state"].removeprefix("TASK_STATE_")


async def followed(nc, agent, method, params):
    """State in the last event of a stream, and the number of its events."""
    events = await nc.subscribe(f"{NAMESPACE}.v1.progress.>")
    await nc.flush()
    task = (await call(nc, agent, method, params))["task"]
    count, seen = 0, state(task)
    while seen not in ENDED:
        event = await events.next_msg(60)
        if event.subject.split(".")[3] != task["id"]:
            continue
        count += 1
        body = json.loads(event.data)
        seen = state(body["statusUpdate"]) if "statusUpdate" in body else seen
    return seen, count


@cell("discover")
async def discover():
    nc = await connect()
    card = await call(nc, "greet", "GetAgentCard", {})
    check(card["name"] == "greet", card)


@cell("call")
async def call_workflow():
    output = await greet(await connect(), "Ada")
    check(output["text"] == "Hello Ada", output)


@cell("stream")
async def stream():
    seen, count = await followed(await connect(), "sleep", "SendStreamingMessage", message({"data": {"seconds": 1}}))
    check(seen == "COMPLETED" and count > 1, seen, count)


@cell("resubscribe")
async def resubscribe():
    nc = await connect()
    begun = await call(nc, "sleep", "SendMessage", message({"data": {"seconds": 3}}, returnImmediately=True))
    seen, _ = await followed(nc, "sleep", "SubscribeToTask", {"id": begun["task"]["id"]})
    check(seen == "COMPLETED", seen)


@cell("list")
async def list_tasks():
    nc = await connect()
    answer = await call(nc, "greet", "SendMessage", message({"data": {"name": "Ada"}}))
    page = await call(nc, "greet", "ListTasks", {"pageSize": 5})
    check(answer["task"]["id"] in [task["id"] for task in page["tasks"]], page)


@cell("cancel")
async def cancel():
    nc = await connect()
    begun = await call(nc, "sleep", "SendMessage", message({"data": {"seconds": 60}}, returnImmediately=True))
    task = await call(nc, "sleep", "CancelTask", {"id": begun["task"]["id"]})
    check(state(task) == "CANCELED", task)


@cell("files out")
async def files_out():
    task = (await call(await connect(), "paint", "SendMessage", message({"data": {}})))["task"]
    files = {artifact["parts"][0].get("filename"): artifact["parts"][0] for artifact in task["artifacts"]}
    check("raw" in files["dot.png"] and files["table.csv"]["url"].startswith("artifact://"), files)


@cell("errors")
async def errors():
    nc = await connect()
    task = (await call(nc, "fail", "SendMessage", message({"data": {}})))["task"]
    check(state(task) == "FAILED" and "fuse" in str(task), task)
    try:
        await call(nc, "fail", "GetTask", {"id": "unknown"})
    except RuntimeError as error:
        check("not found" in str(error), error)
    else:
        check(False, "an unknown task was found")


@cell("5 MB input")
async def large():
    try:
        await greet(await connect(), LARGE)
    except MaxPayloadError:
        return "the server's max_payload, 1 MiB by default"
    check(False, "accepted")


@cell("keys")
async def keys():
    try:
        await connect(password="wrong", max_reconnect_attempts=1, allow_reconnect=False)
    except Exception as error:
        check("uthorization" in str(error), error)
    else:
        check(False, "accepted with a wrong password")
    output = await greet(await connect(), "Ada")
    check(output["text"] == "Hello Ada", output)


fill()
