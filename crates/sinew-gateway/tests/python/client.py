"""Calls a gateway with the official SDK of A2A (PyPI a2a-sdk): checks signatures of cards, and calls by every binding.

Usage: client.py BASE_URL. Prints one JSON object per card and binding, and ends with an error if a call does."""

import asyncio
import json
import sys

import grpc
import httpx
import jwt
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import TaskNotFoundError
from a2a.utils.signing import SignatureVerificationError, create_signature_verifier
from google.protobuf import json_format


def message(name, skill, value, task=None):
    sent = a2a.Message(message_id=name, role=a2a.Role.ROLE_USER)
    sent.parts.add().data.struct_value.update({"value": value})
    sent.metadata.update({"skill": skill})
    if task:
        sent.task_id = task
    return a2a.SendMessageRequest(message=sent)


async def call(http, card, binding, streaming):
    name = f"{binding}-{streaming}"
    config = ClientConfig(
        streaming=streaming,
        httpx_client=http,
        grpc_channel_factory=grpc.aio.insecure_channel,
        supported_protocol_bindings=[binding],
    )
    client = ClientFactory(config).create(card)
    events = [event async for event in client.send_message(message(name, "single", "hello"))]
    kinds = [event.WhichOneof("payload") for event in events]
    task = await client.get_task(a2a.GetTaskRequest(id=events[0].task.id))
    page = await client.list_tasks(a2a.ListTasksRequest(context_id=task.context_id))
    try:
        await client.get_task(a2a.GetTaskRequest(id="unknown"))
        refused = "nothing"
    except (TaskNotFoundError, A2AClientError) as error:
        refused = type(error).__name__
    artifact = json_format.MessageToDict(task.artifacts[0].parts[0])
    return {
        "binding": binding,
        "streaming": streaming,
        "kinds": kinds,
        "state": a2a.TaskState.Name(task.status.state),
        "data": artifact["data"],
        "listed": [one.id for one in page.tasks] == [task.id],
        "refused": refused,
    }


def check(card):
    def key(kid, jku):
        found = jwt.PyJWKClient(jku).get_signing_key(kid)
        return found.key

    verify = create_signature_verifier(key, ["EdDSA"])
    verify(card)
    changed = a2a.AgentCard()
    changed.CopyFrom(card)
    changed.description += "!"
    try:
        verify(changed)
        refused = "nothing"
    except SignatureVerificationError as error:
        refused = type(error).__name__
    return {"signed": True, "changed": refused}


async def main(base):
    async with httpx.AsyncClient(timeout=60) as http:
        for agent in ("", "/agents/single", "/agents/one"):
            print(json.dumps(check(await A2ACardResolver(http, base + agent).get_agent_card())), flush=True)
        card = await A2ACardResolver(http, base).get_agent_card()
        for binding in [interface.protocol_binding for interface in card.supported_interfaces]:
            for streaming in (False, True):
                print(json.dumps(await call(http, card, binding, streaming)), flush=True)


asyncio.run(main(sys.argv[1]))
