"""Calls a gateway with the official SDK of A2A 0.3 (PyPI a2a-sdk 0.3).

Usage: client_0_3.py BASE_URL. Prints one JSON object per way to call, and ends with an error if a call fails."""

import asyncio
import json
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    DataPart,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)


def message(name, parts):
    return Message(message_id=name, role=Role.user, parts=[Part(root=part) for part in parts])


async def call(http, card, streaming):
    client = ClientFactory(ClientConfig(streaming=streaming, httpx_client=http)).create(card)
    sent = message(f"m-{streaming}", [TextPart(text="for you"), DataPart(data={"value": "hello"})])
    kinds = []
    async for task, event in client.send_message(sent):
        kinds.append(type(event).__name__ if event else "Task")
    task = await client.get_task(TaskQueryParams(id=task.id, history_length=1))
    try:
        await client.get_task(TaskQueryParams(id="unknown"))
        refused = "nothing"
    except A2AClientError as error:
        refused = str(error)
    push = PushNotificationConfig(
        url="https://hooks.example.com/a2a",
        token="t",
        authentication=PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="c"),
    )
    kept = await client.set_task_callback(TaskPushNotificationConfig(task_id=task.id, push_notification_config=push))
    found = await client.get_task_callback(GetTaskPushNotificationConfigParams(id=task.id))
    try:
        await client.cancel_task(TaskIdParams(id=task.id))
        cancelled = "done"
    except A2AClientError as error:
        cancelled = str(error)
    return {
        "streaming": streaming,
        "kinds": kinds,
        "state": task.status.state.value,
        "artifact": task.artifacts[0].parts[0].root.data,
        "history": [one.role.value for one in task.history],
        "refused": refused,
        "push": [found.push_notification_config.url, kept.push_notification_config.authentication.schemes],
        "cancelled": cancelled,
    }


async def main(base):
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, f"{base}/agents/single").get_agent_card()
        assert card.url == f"{base}/agents/single" and card.preferred_transport == "JSONRPC", card
        for streaming in [False, True]:
            print(json.dumps(await call(http, card, streaming)))


asyncio.run(main(sys.argv[1]))
