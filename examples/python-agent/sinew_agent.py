"""An agent of a Sinew mesh in one file: it needs NATS (nats-py) and JSON, and nothing of Sinew.

    import sinew_agent

    def shout(value):
        return {"loud": value["text"].upper()}

    sinew_agent.run("shouter", shout, description="Says it louder.")

A handler with a second parameter gets the steps of its task: `steps.run("charge", lambda key: charge(key), once=True)`.
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


def plain(text):
    """The text with a ? for each half of a character: UTF-8 cannot hold those."""
    return text.encode(errors="replace").decode()


def describe(error):
    """The type and the text of an exception, if its class can tell the text."""
    if isinstance(error, nats.errors.OutboundBufferLimitError):
        return "the NATS server is away"
    try:
        return plain(f"{type(error).__name__}: {error}"[:1000]).removesuffix(": ")
    except Exception:
        return type(error).__name__


def make_fault(message, code="SINEW-5100", kind="failure", retryable=True):
    """Why a task has no output; `sinew explain CODE` tells what a code means."""
    return {"code": code, "kind": kind, "message": message, "retryable": retryable}


def answer(task_id, output=None, fault=None, logs=()):
    """The A2A task that says how the work ended, as bytes. Fails for an output that is not JSON."""
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
    """Text that the function prints: shown as usual, and its end kept for the log of the execution."""

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
        """The newest lines that an execution keeps, oldest first."""
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
    """A message has more bytes than the mesh takes."""


async def put_once(client, subject, body, headers=None):
    """Stores a message on a subject that takes one ever: false if another one is there."""
    limit = min(client.max_payload - HEADER_BYTES, MAX_BODY_BYTES)
    if len(body) > limit:
        raise TooLarge(f"{len(body)} bytes, the mesh takes {limit}")
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
            logger.warning("%s is not stored yet: %s", subject, describe(error))
        await asyncio.sleep(1)


class TakenOver(BaseException):
    """Another process works on the task now: this one stops, and says nothing. Handlers let it pass."""


class Cancelled(BaseException):
    """The task was cancelled: this process stops at the next step. Handlers let it pass."""


class Cancellations:
    """Tasks that their executions have cancelled."""

    def __init__(self):
        self.tasks, self.running, self.stop = {}, None, None

    async def receive(self, message):
        """Takes a message of the control subject."""
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
    """A process stopped during a step that acts: it may have taken effect. Find out, and go on under another name."""


class Log:
    """The log of a task's activation: a place takes one record ever, so of two processes the slower one hears of the other."""

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
        """Reads what other processes have written since the last look."""
        while record := await self.record_at(self.places):
            self.fold(json.loads(record))

    async def record_at(self, place):
        """The record at a place; none if the place is empty."""
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
        """Whether the task comes so often because it is long: between its deliveries it does steps."""
        since = deliveries - self.last_useful_delivery
        return 0 < self.last_useful_delivery and since <= MAX_DELIVERIES and self.idle_begins < MAX_IDLE_BEGINS

    async def write(self, record):
        """Writes the next record; false if another one stands there."""
        body = json.dumps({"by": self.by, "at": int(time.time() * 1000), **record}).encode()
        if not await put_once(self.client, f"{self.subject}.{self.places}", body):
            if await self.record_at(self.places) != body:  # otherwise the record is this one, and the first reply was lost
                return False
        self.places += 1
        return True

    async def begin(self, name, once):
        """The key of a step, and its result in a list if it is recorded."""
        if not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
            raise ValueError(f"{name!r} is not a name of a step: 1 to 64 letters, digits, - and _")
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
            wait(self.log.end(name, nth, fault={"message": describe(error)}))
            raise
        wait(self.log.end(name, nth, result=result))
        return result

    async def run_async(self, name, work, once=False):
        """The same for handlers that are coroutines; so is `work`."""
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
    """Calls the handler in a thread, coroutines too: one that blocks keeps neither heartbeats nor announcements waiting."""
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
    """The answer to a task; none if another process works on it."""
    task_id, printed = message.subject.rsplit(".", 1)[1], Printed()
    cancelled = answer(task_id, fault=make_fault("the task was cancelled", "SINEW-5105", "cancelled", False))
    try:
        cancellations.check(task_id)
        extra = json.loads(message.data)["metadata"]["sinew"]
        if extra.get("deadline", float("inf")) <= time.time() * 1000:
            late = "the deadline had passed when the task came"
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
    """Whether a task seems to end each process that works on it."""
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
    """Puts a task into the quarantine, where people find it."""
    at = message.metadata
    headers = {name: text for name, text in (message.headers or {}).items() if not name.lower().startswith("nats-")}
    headers.update({"Sinew-Reason": reason, "Sinew-Subject": message.subject,
                    "Sinew-Time": str(int(at.timestamp.timestamp() * 1000))})
    logger.warning("%s is set aside: %s", message.subject, reason)
    with contextlib.suppress(TooLarge):  # the message has no space for the reason
        await put_once(client, f"{ROOT}.v1.quarantine.TASKS.{at.sequence.stream}", message.data, headers)


async def keep_working(message):
    """Tells the queue that work goes on."""
    while True:
        await asyncio.sleep(WORKING_SECONDS)
        with contextlib.suppress(Error):
            await message.in_progress()


async def is_answered(client, result):
    """Whether the task has a result: its process ended before it could acknowledge it, or the queue was made anew."""
    with contextlib.suppress(NotFoundError):
        await client.jetstream().get_last_msg(f"{ROOT}_RESULTS", result, direct=True)
        return True
    return False


async def work(client, message, handler, cancellations):
    """One task: the result is stored before the task is acknowledged, and a subject takes one result ever."""
    task_id, result = message.subject.rsplit(".", 1)[1], (message.headers or {}).get("Sinew-Result-Subject")
    working, cancellations.running = asyncio.create_task(keep_working(message)), task_id
    try:
        if result is not None and await is_answered(client, result):
            logger.info("%s is answered already", message.subject)
        elif result is None:
            await set_aside(client, message, "the task names no subject for its result")
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
    """Announces the card again and again, also while the server is away or the mesh is not made yet."""
    backoff = 1
    while True:
        try:
            await client.jetstream().publish(f"{ROOT}.v1.card.{card['name']}", json.dumps(card).encode())
            wait, backoff = ANNOUNCE_SECONDS, 1
        except Error as error:
            logger.warning("the card is not announced: %s", describe(error))
            wait, backoff = backoff, min(2 * backoff, 10)
        await asyncio.sleep(wait)


def connection(name):
    """How to connect, as the environment says. Users of a mesh hear answers on `_INBOX_{name}.>` only."""
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
            logger.debug("no tasks are to be had: %s", describe(error))
            await asyncio.sleep(1)
            continue
        for message in messages:
            try:
                await work(client, message, handler, cancellations)
            except Exception as error:
                logger.warning("%s comes again: %s", message.subject, describe(error))
    announcing.cancel()
    if client.is_closed:
        sys.exit(f"the server has closed the connection: {client.last_error}")
    with contextlib.suppress(Error):
        await client.jetstream().publish(f"{ROOT}.v1.card.{name}", b"")
    await client.close()


def run(name, handler, description="", version="1.0.0", input_schema=None, output_schema=None):
    """Serves a function as an agent. An exception of the function is a failure that may be tried again."""
    asyncio.run(serve(card_of(name, description or name, version, input_schema, output_schema), handler))
