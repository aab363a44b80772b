"""An agent of a Sinew mesh in one file: it needs NATS (nats-py) and JSON, and nothing of Sinew.

    import sinew_agent

    def shout(value):
        return {"loud": value["text"].upper()}

    sinew_agent.run("shouter", shout, description="Says it louder.")

A handler with a second parameter gets the steps of its task: `steps.run("charge", lambda key: charge(key), once=True)`.
"""
import asyncio, contextlib, hashlib, inspect, json, os, re, signal, time, uuid

import nats
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError, NotFoundError

ROOT = os.environ.get("SINEW_NAMESPACE", "sinew")
ANNOUNCE_SECONDS = 5  # two announcements that are missed make the agent late, a minute without one makes it gone
WORKING_SECONDS = 2  # the queue gives a task to another process after 7 s without a word


def card_of(name, description, version, input_schema, output_schema):
    """The card: what callers see. Names have letters, digits, - and _: others need the token rule of the binding."""
    schemas = {"input_schema": input_schema, "output_schema": output_schema}
    schemas = {key: schema for key, schema in schemas.items() if schema is not None}
    return {
        "name": name, "description": description, "version": version,
        "supportedInterfaces": [{"url": f"nats:///{ROOT}/{name}", "protocolVersion": "1.0",
                                 "protocolBinding": "https://github.com/sinew-mesh/sinew/a2a/bindings/nats/v1"}],
        "capabilities": {"extensions": [{"uri": "https://solace.com/a2a/extensions/sam/schemas", "params": schemas}]},
        "defaultInputModes": ["application/json"], "defaultOutputModes": ["application/json"],
        "skills": [{"id": name, "name": name, "description": description, "tags": ["agent"]}],
    }


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


class TakenOver(BaseException):
    """Another process works on the task now: this one stops, and says nothing. Handlers let it pass."""


class StepUnknown(Exception):
    """A process stopped during a step that acts: it may have taken effect. Find out, and go on under another name."""


class Log:
    """The log of a task's activation: a place takes one record ever, so of two processes the slower one hears of the other."""

    def __init__(self, js, message):
        agent, execution, task = message.subject.split(".")[-3:]
        extra = json.loads(message.data)["metadata"]["sinew"]
        self.js, self.by, self.opened, self.places, self.done, self.begun, self.counts = js, uuid.uuid4().hex, False, 0, {}, set(), {}
        self.activation, self.subject = extra["activation"], f"{ROOT}.v1.step.{agent}.{execution}.{extra['activation']}"
        self.first = {"kind": "begin", "task": task, "attempt": extra.get("attempt", 1), "delivery": message.metadata.num_delivered}
        self.lock = asyncio.Lock()

    async def read(self):
        """Reads what other processes have written since the last look."""
        with contextlib.suppress(NotFoundError):
            while True:
                found = await self.js.get_last_msg(f"{ROOT}_STEPS", f"{self.subject}.{self.places}", direct=True)
                self.fold(json.loads(found.data))

    def fold(self, record):
        self.places, at = self.places + 1, (record.get("step"), record.get("nth"))
        if record["kind"] == "call":
            self.begun.add(at)
        elif record["kind"] == "done":
            self.begun.discard(at)
            if "fault" not in record:
                self.done[at] = record.get("result")

    async def write(self, record):
        """Writes the next record; false if another one stands there."""
        body = json.dumps({"by": self.by, "at": int(time.time() * 1000), **record}, ensure_ascii=False).encode()
        try:
            await self.js.publish(f"{self.subject}.{self.places}", body, headers={"Nats-Expected-Last-Subject-Sequence": "0"})
        except APIError:
            return False
        self.places += 1
        return True

    async def begin(self, name, once):
        """The key of a step, and its result in a list if it is recorded."""
        if not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
            raise ValueError(f"{name!r} is not a name of a step: 1 to 64 letters, digits, - and _")
        nth = self.counts[name] = self.counts.get(name, -1) + 1
        async with self.lock:
            while not self.opened:
                await self.read()
                self.opened = await self.write(self.first)
            if (name, nth) in self.done:
                return nth, [self.done[name, nth]]
            if (name, nth) in self.begun:
                raise StepUnknown(f"a process stopped during step '{name}', which may have taken effect")
            if once and not await self.write({"kind": "call", "step": name, "nth": nth}):
                raise TakenOver
        return nth, []

    async def end(self, name, nth, **how):
        async with self.lock:
            if not await self.write({"kind": "done", "step": name, "nth": nth, **how}):
                raise TakenOver


class Steps:
    """Work that is done once: its result is recorded, and returned when the task comes again.

    A step is told by its name and by how many of this name came before it. With `once` the work is begun at most once. An
    exception is not recorded: the next attempt does the work again."""

    def __init__(self, log, loop):
        self.log, self.loop = log, loop

    def run(self, name, work, once=False):
        """For handlers that are plain functions: they run in a thread."""
        wait = lambda what: asyncio.run_coroutine_threadsafe(what, self.loop).result()
        nth, known = wait(self.log.begin(name, once))
        if known:
            return known[0]
        try:
            result = work(f"{self.log.activation}-{name}-{nth}")
        except Exception as error:
            wait(self.log.end(name, nth, fault={"message": f"{error}"[:1000]}))
            raise
        wait(self.log.end(name, nth, result=result))
        return result

    async def run_async(self, name, work, once=False):
        """The same for handlers that are coroutines; so is `work`."""
        nth, known = await self.log.begin(name, once)
        if known:
            return known[0]
        try:
            result = await work(f"{self.log.activation}-{name}-{nth}")
        except Exception as error:
            await self.log.end(name, nth, fault={"message": f"{error}"[:1000]})
            raise
        await self.log.end(name, nth, result=result)
        return result


async def call(handler, value, log):
    """The work itself: a function runs in a thread, so that the agent goes on announcing itself."""
    arguments = [value, Steps(log, asyncio.get_running_loop())][: len(inspect.signature(handler).parameters)]
    if inspect.iscoroutinefunction(handler):
        return await handler(*arguments)
    return await asyncio.to_thread(handler, *arguments)


async def keep_working(message):
    """Tells the queue that work goes on."""
    while True:
        await asyncio.sleep(WORKING_SECONDS)
        await message.in_progress()


async def work(js, message, handler):
    """One task: the result is stored before the task is acknowledged, and a subject takes one result ever."""
    task_id, working = message.subject.rsplit(".", 1)[1], asyncio.create_task(keep_working(message))
    try:
        value = json.loads(message.data)["metadata"]["sinew"]["input"]
        done = answer(task_id, await call(handler, value, Log(js, message)))
    except TakenOver:
        return
    except Exception as error:  # whatever it is, a caller waits for an answer
        done = answer(task_id, error=f"{type(error).__name__}: {error}"[:1000])
    finally:
        working.cancel()
    with contextlib.suppress(APIError):  # another process has answered before: its answer counts
        once = {"Nats-Expected-Last-Subject-Sequence": "0"}
        await js.publish(message.headers["Sinew-Result-Subject"], json.dumps(done, ensure_ascii=False).encode(), headers=once)
    await message.ack_sync()


async def announce(js, card):
    while True:
        await js.publish(f"{ROOT}.v1.card.{card['name']}", json.dumps(card).encode())
        await asyncio.sleep(ANNOUNCE_SECONDS)


async def serve(card, handler):
    """Serves until SIGTERM or Ctrl-C."""
    client = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), max_reconnect_attempts=-1)
    js, stream, name = client.jetstream(), f"{ROOT}_TASKS", card["name"]
    queue = f"agent-{name}"
    try:
        await js.consumer_info(stream, queue)
    except NotFoundError:
        await js.add_consumer(stream, ConsumerConfig(durable_name=queue, ack_policy=AckPolicy.EXPLICIT, ack_wait=15,
                                                     max_deliver=-1, filter_subject=f"{ROOT}.v1.task.{name}.>"))
    tasks, stop = await js.pull_subscribe_bind(queue, stream), asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    announcing = asyncio.create_task(announce(js, card))
    while not stop.is_set():
        with contextlib.suppress(nats.errors.TimeoutError):
            for message in await tasks.fetch(1, timeout=1):
                await work(js, message, handler)
    announcing.cancel()
    await js.publish(f"{ROOT}.v1.card.{name}", b"")
    await client.close()


def run(name, handler, description="", version="1.0.0", input_schema=None, output_schema=None):
    """Serves a function as an agent. An exception of the function is a failure that may be tried again."""
    asyncio.run(serve(card_of(name, description or name, version, input_schema, output_schema), handler))
