"""An agent of a Sinew mesh in one file, which requires only NATS (nats-py) and JSON.

    import sinew_agent

    def shout(value):
        return {"loud": value["text"].upper()}

    sinew_agent.run("shouter", shout, description="Says it louder.")

A handler with a second parameter receives the steps of its task: `steps.run("charge", lambda key: charge(key), once=True)`.
"""
import asyncio, contextlib, inspect, io, json, logging, os, re, signal, ssl, sys, time, uuid

import nats
from nats.errors import Error
from nats.js.errors import NotFoundError

ROOT = os.environ.get("SINEW_NAMESPACE", "sinew")
ANNOUNCE_SECONDS = 5  # after two missed announcements the agent is late, after a minute offline
WORKING_SECONDS = 2  # the queue redelivers a task to another process after 7 s without progress
CANCELLED_SECONDS = 60  # how long to keep a cancellation that arrives before its task
STORE_SECONDS = 120  # how long to retry storing a message on an unavailable or full server
MAX_DELIVERIES = 20  # a task that is delivered more often without a result probably crashes its process
MAX_IDLE_BEGINS = 5  # the same for a task that was started this often in a row without a new step
MAX_BODY_BYTES = 1024 * 1024  # executors reject larger results
HEADER_BYTES = 1024  # space for headers, which count towards the server's limit
MAX_LOG_LINES, MAX_LOG_LINE, MAX_LOG_BYTES = 128, 1000, 32 * 1024  # limits of the log that an execution stores for a task
WRONG_LAST_SEQUENCE = 10071  # the server's error code if another message exists

logger = logging.getLogger("sinew_agent")


def card_of(name, description, version, input_schema, output_schema):
    """Returns the card that callers see. Names have letters, digits, - and _; the binding describes how to encode others."""
    schemas = {"input_schema": input_schema, "output_schema": output_schema}
    schemas = {key: schema for key, schema in schemas.items() if schema is not None}
    return {
        "name": name, "description": description, "version": version,
        "supportedInterfaces": [{"url": f"nats:///{ROOT}/{name}", "protocolVersion": "1.0",
                                 "protocolBinding": "https://github.com/sinew-mesh/sinew/a2a/bindings/nats/v1"}],
        "capabilities": {"extensions": [
            {"uri": "https://solace.com/a2a/extensions/sam/schemas", "params": schemas},
            # Callers outside of executions call this agent through an execution: it reads its queue only.
            {"uri": "https://github.com/sinew-mesh/sinew/a2a/extensions/delivery/v1",
             "params": {"delivery": "queue", "endpoint": False}},
        ]},
        "defaultInputModes": ["application/json"], "defaultOutputModes": ["application/json"],
        "skills": [{"id": name, "name": name, "description": description, "tags": ["agent"]}],
    }


def plain(text):
    """Replaces lone surrogates, which UTF-8 cannot encode, by ?."""
    return text.encode(errors="replace").decode()


def describe(error):
    """Returns the type and the text of an exception, or the type if the text cannot be formatted."""
    if isinstance(error, nats.errors.OutboundBufferLimitError):
        return "the NATS server is unavailable"
    try:
        return plain(f"{type(error).__name__}: {error}"[:1000]).removesuffix(": ")
    except Exception:
        return type(error).__name__


def make_fault(message, code="SINEW-5100", kind="failure", retryable=True):
    """Returns the reason why a task has no output; `sinew explain CODE` explains a code."""
    return {"code": code, "kind": kind, "message": message, "retryable": retryable}


def answer(task_id, output=None, fault=None, logs=()):
    """Returns the A2A task with the outcome, as bytes. Raises if the output is not JSON."""
    result, artifacts, extra = {"type": "structured_invocation_result"}, [], {"logs": list(logs)}
    if fault:
        state = "TASK_STATE_CANCELED" if fault["kind"] == "cancelled" else "TASK_STATE_FAILED"
        text, extra["fault"] = fault["message"], fault
        result.update(status="error", error_message=text)
    else:
        # Without sha256 and size, which would depend on how the reader formats numbers: 0.00003 for 3e-05.
        state, text, meta = "TASK_STATE_COMPLETED", "Done.", {"version": 0, "media_type": "application/json"}
        result.update(status="success", output_artifact_ref={"name": "output.json", "version": 0})
        artifacts = [{"artifactId": "output.json:0", "name": "output.json", "metadata": meta,
                      "parts": [{"data": output, "mediaType": "application/json"}]}]
    message = {"messageId": f"{task_id}-result", "role": "ROLE_AGENT", "parts": [{"text": text}, {"data": result}]}
    task = {"id": task_id, "contextId": task_id, "status": {"state": state, "message": message},
            "artifacts": artifacts, "metadata": {"sinew": extra}}
    return json.dumps(task, ensure_ascii=False, allow_nan=False).encode()


class Printed(io.StringIO):
    """Text that the function prints: written to stdout, and its end stored for the log of the execution."""

    def write(self, text):
        sys.__stdout__.write(text)
        written = super().write(text)
        if self.tell() > 2 * MAX_LOG_BYTES:
            newest = self.getvalue()[-MAX_LOG_BYTES:]
            self.seek(0)
            self.truncate()
            super().write(newest)
        return written

    def logs(self):
        """Returns the newest lines that an execution stores, oldest first."""
        now, lines, room = int(time.time() * 1000), [], MAX_LOG_BYTES
        for line in reversed(self.getvalue().splitlines()):
            text = plain(line.rstrip()[:MAX_LOG_LINE])
            room -= len(text.encode())
            if room < 0 or len(lines) == MAX_LOG_LINES:
                break
            if text:
                lines.append({"at": now, "text": text})
        return lines[::-1]


class TooLarge(Exception):
    """A message exceeds the maximum size of the mesh."""


async def put_once(client, subject, body, headers=None):
    """Stores a message on a write-once subject; returns False if another message exists."""
    limit = min(client.max_payload - HEADER_BYTES, MAX_BODY_BYTES)
    if len(body) > limit:
        raise TooLarge(f"{len(body)} bytes; the limit of the mesh is {limit}")
    headers = {**(headers or {}), "Nats-Expected-Last-Subject-Sequence": "0"}
    until = time.monotonic() + STORE_SECONDS
    while True:
        try:
            await client.jetstream().publish(subject, body, headers=headers)
            return True
        except Error as error:
            if getattr(error, "err_code", None) == WRONG_LAST_SEQUENCE:
                return False
            if client.is_closed or time.monotonic() > until:
                raise
            logger.warning("%s is not stored yet; retrying: %s", subject, describe(error))
        await asyncio.sleep(1)


class TakenOver(BaseException):
    """Another process took over the task: this one stops without a result. Handlers must not catch it."""


class Cancelled(BaseException):
    """The task was cancelled: this process stops at the next step. Handlers must not catch it."""


class Cancellations:
    """Tasks that their executions have cancelled."""

    def __init__(self):
        self.tasks, self.running, self.stop = {}, None, None

    async def receive(self, message):
        """Handles a message of the control subject."""
        task_id, now = message.subject.rsplit(".", 1)[1], time.monotonic()
        try:
            json.loads(message.data)["cancel"]
        except (ValueError, KeyError, TypeError):
            return
        self.tasks = {one: at for one, at in self.tasks.items() if now - at < CANCELLED_SECONDS or one == self.running}
        self.tasks[task_id] = now
        if task_id == self.running and self.stop:
            self.stop()

    def check(self, task_id):
        if task_id in self.tasks:
            raise Cancelled


class StepUnknown(Exception):
    """A process stopped during a step with side effects, which may have taken effect. Check, and continue with another step name."""


class Log:
    """The log of a task's activation. Each place is write-once, so the slower of two processes detects the other."""

    def __init__(self, client, message, cancellations=None):
        agent, execution, task = message.subject.split(".")[-3:]
        extra = json.loads(message.data)["metadata"]["sinew"]
        self.task, self.cancellations = task, cancellations or Cancellations()
        self.client, self.by, self.opened, self.places = client, uuid.uuid4().hex, False, 0
        self.done, self.begun, self.counts = {}, set(), {}
        self.delivery, self.last_useful_delivery, self.idle_begins = 0, 0, 0
        self.activation, self.subject = extra["activation"], f"{ROOT}.v1.step.{agent}.{execution}.{extra['activation']}"
        self.first = {"kind": "begin", "task": task, "attempt": extra.get("attempt", 1), "delivery": message.metadata.num_delivered}
        self.lock = asyncio.Lock()

    async def read(self):
        """Reads the records that other processes wrote since the last call."""
        while record := await self.record_at(self.places):
            self.fold(json.loads(record))

    async def record_at(self, place):
        """Returns the record at a place, or None if the place is empty."""
        js, subject = self.client.jetstream(), f"{self.subject}.{place}"
        with contextlib.suppress(NotFoundError):
            return (await js.get_last_msg(f"{ROOT}_STEPS", subject, direct=True)).data

    def fold(self, record):
        self.places, at = self.places + 1, (record.get("step"), record.get("nth"))
        if record["kind"] == "begin":
            self.delivery, self.idle_begins = record.get("delivery", 0), self.idle_begins + 1
        else:
            self.last_useful_delivery, self.idle_begins = self.delivery, 0
        if record["kind"] == "call":
            self.begun.add(at)
        elif record["kind"] == "done":
            self.begun.discard(at)
            if "fault" not in record:
                self.done[at] = record.get("result")

    def is_going_on(self, deliveries):
        """Returns whether a long task is redelivered often but makes progress: it records steps between deliveries."""
        since = deliveries - self.last_useful_delivery
        return 0 < self.last_useful_delivery and since <= MAX_DELIVERIES and self.idle_begins < MAX_IDLE_BEGINS

    async def write(self, record):
        """Writes the next record; returns False if another one exists."""
        body = json.dumps({"by": self.by, "at": int(time.time() * 1000), **record}).encode()
        if not await put_once(self.client, f"{self.subject}.{self.places}", body):
            if await self.record_at(self.places) != body:  # otherwise the record is this one, and the first reply was lost
                return False
        self.places += 1
        return True

    async def begin(self, name, once):
        """Returns the number of a step, and its result in a list if it is recorded."""
        if not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
            raise ValueError(f"{name!r} is not a valid step name: expected 1 to 64 letters, digits, - and _")
        self.cancellations.check(self.task)
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
    """Work that runs once: its result is recorded, and returned when the task is redelivered.

    A step is identified by its name and the number of earlier steps of that name. With `once` the work starts at most once. An
    exception is not recorded: the next attempt runs the work again."""

    def __init__(self, log, loop):
        self.log, self.loop = log, loop

    def run(self, name, work, once=False):
        """Runs a step of a handler that is a plain function, in its thread."""
        wait = lambda what: asyncio.run_coroutine_threadsafe(what, self.loop).result()
        nth, known = wait(self.log.begin(name, once))
        if known:
            return known[0]
        try:
            result = work(f"{self.log.activation}-{name}-{nth}")
        except Exception as error:
            wait(self.log.end(name, nth, fault={"message": describe(error)}))
            raise
        wait(self.log.end(name, nth, result=result))
        return result

    async def run_async(self, name, work, once=False):
        """Runs a step of a handler that is a coroutine; `work` is one, too."""
        # The handler has its own event loop; the log uses that of the connection.
        wait = lambda what: asyncio.wrap_future(asyncio.run_coroutine_threadsafe(what, self.loop))
        nth, known = await wait(self.log.begin(name, once))
        if known:
            return known[0]
        try:
            result = await work(f"{self.log.activation}-{name}-{nth}")
        except Exception as error:
            await wait(self.log.end(name, nth, fault={"message": describe(error)}))
            raise
        await wait(self.log.end(name, nth, result=result))
        return result


async def call(handler, value, log):
    """Calls the handler in a thread, also a coroutine, so that a blocking handler delays no heartbeats or announcements."""
    arguments = [value, Steps(log, asyncio.get_running_loop())][: len(inspect.signature(handler).parameters)]

    async def run_coroutine():
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        log.cancellations.stop = lambda: loop.call_soon_threadsafe(task.cancel)
        return await handler(*arguments)

    def in_thread():
        try:
            if inspect.iscoroutinefunction(handler):
                return asyncio.run(run_coroutine())
            return handler(*arguments)
        except asyncio.CancelledError:
            log.cancellations.check(log.task)  # otherwise the handler cancelled itself
            raise
        except StopIteration as error:  # a future cannot carry StopIteration, so the agent would wait forever
            raise RuntimeError(describe(error)) from error

    return await asyncio.to_thread(in_thread)


async def attempt(client, message, handler, cancellations):
    """Returns the answer to a task, or None if another process took it over."""
    task_id, printed = message.subject.rsplit(".", 1)[1], Printed()
    cancelled = answer(task_id, fault=make_fault("the task was cancelled", "SINEW-5105", "cancelled", False))
    try:
        cancellations.check(task_id)
        extra = json.loads(message.data)["metadata"]["sinew"]
        if extra.get("deadline", float("inf")) <= time.time() * 1000:
            late = "the deadline had passed when the task arrived"
            return answer(task_id, fault=make_fault(late, "SINEW-5104", "timeout"))
        if "input" not in extra:
            raise ValueError("the input has more than 64 KiB, which this agent does not fetch")
        with contextlib.redirect_stdout(printed):
            output = await call(handler, extra["input"], Log(client, message, cancellations))
        cancellations.check(task_id)
    except TakenOver:
        return None
    except Cancelled:
        return cancelled
    except BaseException as error:  # any exception, including SystemExit, because a caller waits for an answer
        if task_id in cancellations.tasks:
            return cancelled
        return answer(task_id, fault=make_fault(describe(error)), logs=printed.logs())
    try:
        return answer(task_id, output, logs=printed.logs())
    except Exception as error:
        fault = make_fault(f"the output cannot be written as JSON: {describe(error)}")
        return answer(task_id, fault=fault, logs=printed.logs())


async def comes_too_often(client, message):
    """Returns whether a task probably crashes each process that works on it."""
    deliveries = message.metadata.num_delivered
    if deliveries <= MAX_DELIVERIES:
        return False
    try:
        log = Log(client, message)
        await log.read()
        return not log.is_going_on(deliveries)
    except (KeyError, TypeError, ValueError, nats.errors.NoRespondersError):  # the record is invalid, or the mesh has no stream for steps
        return True


async def set_aside(client, message, reason):
    """Quarantines a task, so that operators can inspect it."""
    at = message.metadata
    headers = {name: text for name, text in (message.headers or {}).items() if not name.lower().startswith("nats-")}
    headers.update({"Sinew-Reason": reason, "Sinew-Subject": message.subject,
                    "Sinew-Time": str(int(at.timestamp.timestamp() * 1000))})
    logger.warning("%s was quarantined: %s", message.subject, reason)
    with contextlib.suppress(TooLarge):  # the message has no space for the reason
        await put_once(client, f"{ROOT}.v1.quarantine.TASKS.{at.sequence.stream}", message.data, headers)


async def keep_working(message):
    """Extends the acknowledgement deadline while the work is in progress."""
    while True:
        await asyncio.sleep(WORKING_SECONDS)
        with contextlib.suppress(Error):
            await message.in_progress()


async def is_answered(client, result):
    """Returns whether the task has a result: its process ended before the acknowledgement, or the queue was recreated."""
    with contextlib.suppress(NotFoundError):
        await client.jetstream().get_last_msg(f"{ROOT}_RESULTS", result, direct=True)
        return True
    return False


async def work(client, message, handler, cancellations):
    """Processes one task: the result is stored before the task is acknowledged, and its subject is write-once."""
    task_id, result = message.subject.rsplit(".", 1)[1], (message.headers or {}).get("Sinew-Result-Subject")
    working, cancellations.running = asyncio.create_task(keep_working(message)), task_id
    try:
        if result is not None and await is_answered(client, result):
            logger.info("%s already has a result", message.subject)
        elif result is None:
            await set_aside(client, message, "the task has no result subject")
        elif await comes_too_often(client, message):
            reason = f"the task was delivered {MAX_DELIVERIES} times without an answer"
            await set_aside(client, message, reason)
            await put_once(client, result, answer(task_id, fault=make_fault(reason, "SINEW-5107", "error", False)))
        else:
            # Run in a separate task, so that a handler that cancels itself does not cancel the agent.
            attempting = asyncio.create_task(attempt(client, message, handler, cancellations))
            await asyncio.wait([attempting])
            body = attempting.result()
            if body is None:
                return
            try:
                await put_once(client, result, body)  # false: another process stored a result first, which counts
            except TooLarge as error:
                await put_once(client, result, answer(task_id, fault=make_fault(f"the result has {error}", "SINEW-5109")))
        await message.ack_sync(timeout=5)
    finally:
        working.cancel()
        cancellations.running = cancellations.stop = None


async def announce(client, card):
    """Announces the card periodically, also while the server is unavailable or the mesh is not provisioned yet."""
    backoff = 1
    while True:
        try:
            await client.jetstream().publish(f"{ROOT}.v1.card.{card['name']}", json.dumps(card).encode())
            wait, backoff = ANNOUNCE_SECONDS, 1
        except Error as error:
            logger.warning("cannot announce the card: %s", describe(error))
            wait, backoff = backoff, min(2 * backoff, 10)
        await asyncio.sleep(wait)


def connection(name):
    """Returns connection options from the environment. Users of a mesh receive replies on `_INBOX_{name}.>` only."""
    async def complain(error):
        logger.warning("NATS: %s", describe(error))

    env = {key: value for key, value in os.environ.items() if value}
    options = {
        "servers": env.get("NATS_URL", "nats://127.0.0.1:4222").split(","), "inbox_prefix": f"_INBOX_{name}",
        "user_credentials": env.get("NATS_CREDS"), "nkeys_seed": env.get("NATS_NKEY"), "error_cb": complain,
        "max_reconnect_attempts": -1, "ping_interval": 10,
        "pending_size": 0,  # while the server is unavailable, requests fail instead of being sent late
    }
    if "NATS_PASSWORD" in env:
        options.update(user=env.get("NATS_USER"), password=env["NATS_PASSWORD"])
    elif "NATS_USER" in env:
        options["token"] = env["NATS_USER"]
    if "NATS_CA" in env or "NATS_CERT" in env:
        options["tls"] = ssl.create_default_context(cafile=env.get("NATS_CA"))
        if "NATS_CERT" in env:
            options["tls"].load_cert_chain(env["NATS_CERT"], env.get("NATS_KEY"))
    return options


async def serve(card, handler):
    """Serves until SIGTERM or Ctrl-C."""
    name, stop = card["name"], asyncio.Event()
    client = await nats.connect(**connection(name))
    # Executors create the queue, at the latest with the first task: an agent with that right could read the tasks of others.
    cancellations = Cancellations()
    await client.subscribe(f"{ROOT}.v1.control.{name}.*", cb=cancellations.receive)
    tasks = await client.jetstream().pull_subscribe_bind(f"agent-{name}", f"{ROOT}_TASKS")
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    announcing = asyncio.create_task(announce(client, card))
    while not (stop.is_set() or client.is_closed):
        try:
            messages = await tasks.fetch(1, timeout=1)
        except nats.errors.TimeoutError:
            continue
        except Error as error:  # the server is unavailable, or the queue does not exist yet
            logger.debug("cannot fetch tasks: %s", describe(error))
            await asyncio.sleep(1)
            continue
        for message in messages:
            try:
                await work(client, message, handler, cancellations)
            except Exception as error:
                logger.warning("%s will be redelivered: %s", message.subject, describe(error))
    announcing.cancel()
    if client.is_closed:
        sys.exit(f"the server closed the connection: {client.last_error}")
    with contextlib.suppress(Error):
        await client.jetstream().publish(f"{ROOT}.v1.card.{name}", b"")
    await client.close()


def run(name, handler, description="", version="1.0.0", input_schema=None, output_schema=None):
    """Serves a function as an agent. An exception of the function is a failure that may be retried."""
    asyncio.run(serve(card_of(name, description or name, version, input_schema, output_schema), handler))
