"""An agent in Python: it needs NATS and JSON, and nothing of Sinew. See README.md."""
import asyncio, contextlib, hashlib, json, os, signal

import nats
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError, NotFoundError

NAME = "shouter"  # letters, digits, - and _: other names need the token rule of the binding
ROOT = os.environ.get("SINEW_NAMESPACE", "sinew")
INPUT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
OUTPUT = {"type": "object", "required": ["loud"], "properties": {"loud": {"type": "string"}}}
SCHEMAS = {"uri": "https://solace.com/a2a/extensions/sam/schemas", "params": {"input_schema": INPUT, "output_schema": OUTPUT}}
CARD = {
    "name": NAME, "description": "Says it louder.", "version": "1.0.0",
    "supportedInterfaces": [{"url": f"nats:///{ROOT}/{NAME}", "protocolVersion": "1.0",
                             "protocolBinding": "https://github.com/sinew-mesh/sinew/a2a/bindings/nats/v1"}],
    "capabilities": {"extensions": [SCHEMAS]}, "defaultInputModes": ["application/json"],
    "defaultOutputModes": ["application/json"],
    "skills": [{"id": "shout", "name": "shout", "description": "Says it louder.", "tags": ["text"]}],
}

def handle(value):
    """The work itself; an exception is a failure that may be tried again."""
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise ValueError("text: expected a string")
    return {"loud": value["text"].upper() + "!"}


def answer(task_id, output=None, error=None):
    """The A2A task that says how the work ended."""
    result, artifacts = {"type": "structured_invocation_result", "status": "error", "error_message": error}, []
    if error is None:
        body = json.dumps(output, separators=(",", ":"), ensure_ascii=False).encode()
        meta = {"version": 0, "sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "media_type": "application/json"}
        artifacts = [{"artifactId": "output.json:0", "name": "output.json", "metadata": meta,
                      "parts": [{"data": output, "mediaType": "application/json"}]}]
        result = {"type": result["type"], "status": "success", "output_artifact_ref": {"name": "output.json", "version": 0}}
    message = {"messageId": f"{task_id}-result", "role": "ROLE_AGENT", "parts": [{"text": error or "Done."}, {"data": result}]}
    state = "TASK_STATE_FAILED" if error else "TASK_STATE_COMPLETED"
    return {"id": task_id, "contextId": task_id, "status": {"state": state, "message": message}, "artifacts": artifacts}


async def work(js, message):
    """One task: the result is stored before the task is acknowledged, and a subject takes one result ever."""
    task = json.loads(message.data)
    try:
        done = answer(message.subject.rsplit(".", 1)[1], handle(task["metadata"]["sinew"]["input"]))
    except Exception as error:  # whatever it is, somebody waits for an answer
        done = answer(message.subject.rsplit(".", 1)[1], error=f"{type(error).__name__}: {error}"[:1000])
    with contextlib.suppress(APIError):  # somebody has answered before: theirs counts
        once = {"Nats-Expected-Last-Subject-Sequence": "0"}
        await js.publish(message.headers["Sinew-Result-Subject"], json.dumps(done, ensure_ascii=False).encode(), headers=once)
    await message.ack_sync()


async def main():
    client = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), max_reconnect_attempts=-1)
    js, stream, queue = client.jetstream(), f"{ROOT}_TASKS", f"agent-{NAME}"
    try:
        await js.consumer_info(stream, queue)
    except NotFoundError:
        await js.add_consumer(stream, ConsumerConfig(durable_name=queue, ack_policy=AckPolicy.EXPLICIT, ack_wait=15,
                                                     max_deliver=-1, filter_subject=f"{ROOT}.v1.task.{NAME}.>"))
    tasks, stop, announced = await js.pull_subscribe_bind(queue, stream), asyncio.Event(), 0
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    while not stop.is_set():
        if (now := asyncio.get_running_loop().time()) > announced:
            await js.publish(f"{ROOT}.v1.card.{NAME}", json.dumps(CARD).encode())
            announced = now + 5  # after two that are missed the agent is late, after a minute it is gone
        with contextlib.suppress(nats.errors.TimeoutError):
            for message in await tasks.fetch(1, timeout=1):  # longer than 15 s: `await message.in_progress()` now and then
                await work(js, message)
    await js.publish(f"{ROOT}.v1.card.{NAME}", b"")
    await client.close()


asyncio.run(main())
