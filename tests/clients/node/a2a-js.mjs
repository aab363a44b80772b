// The official SDK of A2A for JavaScript.
// page
import { randomUUID } from 'node:crypto';
import { SendMessageRequest } from '@a2a-js/sdk';
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory } from '@a2a-js/sdk/client';

function clientOf(gateway, agent, key) {
  const fetchImpl = (url, init) => {
    const headers = new Headers(init?.headers);
    if (key) headers.set('Authorization', `Bearer ${key}`);
    return fetch(url, { ...init, headers });
  };
  const factory = new ClientFactory({
    transports: [new JsonRpcTransportFactory({ fetchImpl })],
    cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
  });
  return factory.createFromUrl(`${gateway}/agents/${agent}/`);
}

function request(parts, { taskId = '', returnImmediately = false } = {}) {
  const message = { messageId: randomUUID(), role: 'ROLE_USER', parts, taskId };
  return SendMessageRequest.fromJSON({ message, configuration: { returnImmediately } });
}

const outputOf = (task) => task.artifacts.at(-1).parts[0].content.value;

async function greet(gateway, name, key) {
  const client = await clientOf(gateway, 'greet', key);
  return outputOf(await client.sendMessage(request([{ data: { name } }]))); // {text: 'Hello Ada', …}
}
// end page

import { TaskState } from '@a2a-js/sdk';
import { GATEWAY, KEY, KEYED_GATEWAY, LARGE, REFUSED, TABLE_BYTES, cell, check, fails, fill } from './cells.mjs';

async function last(events) {
  let count = 0;
  let state;
  let id;
  for await (const { payload } of events) {
    count += 1;
    state = payload.value.status?.state ?? state;
    id = payload.value.taskId || payload.value.id || id;
  }
  return { count, state: TaskState[state], id };
}

cell('discover', async () => {
  const card = await new DefaultAgentCardResolver().resolve(GATEWAY);
  check(card.skills.some(({ id }) => id === 'greet'), card);
});

cell('call', async () => {
  const output = await greet(GATEWAY, 'Ada');
  check(output.text === 'Hello Ada', output);
});

cell('stream', async () => {
  const client = await clientOf(GATEWAY, 'greet');
  const seen = await last(client.sendMessageStream(request([{ data: { name: 'Ada' } }])));
  check(seen.count > 1 && seen.state === 'TASK_STATE_COMPLETED', seen);
});

cell('resubscribe', async () => {
  const client = await clientOf(GATEWAY, 'sleep');
  const { id } = await client.sendMessage(request([{ data: { seconds: 3 } }], { returnImmediately: true }));
  const seen = await last(client.resubscribeTask({ id, tenant: '' }));
  check(seen.state === 'TASK_STATE_COMPLETED', seen);
});

cell('list', async () => {
  const client = await clientOf(GATEWAY, 'greet');
  const { id } = await client.sendMessage(request([{ data: { name: 'Ada' } }]));
  const { tasks } = await client.listTasks({ tenant: '', contextId: '', status: 0, pageSize: 5, pageToken: '' });
  check(tasks.some((task) => task.id === id), tasks);
});

cell('cancel', async () => {
  const client = await clientOf(GATEWAY, 'sleep');
  const { id } = await client.sendMessage(request([{ data: { seconds: 60 } }], { returnImmediately: true }));
  let task = await client.cancelTask({ id, tenant: '' });
  while (['TASK_STATE_WORKING', 'TASK_STATE_SUBMITTED'].includes(TaskState[task.status.state])) {
    task = await client.getTask({ id, tenant: '' });
  }
  check(TaskState[task.status.state] === 'TASK_STATE_CANCELED', task);
});

cell('approval', async () => {
  const client = await clientOf(GATEWAY, 'ask');
  const asked = await last(client.sendMessageStream(request([{ data: { name: 'Ada' } }])));
  check(asked.state === 'TASK_STATE_INPUT_REQUIRED', asked);
  const task = await client.sendMessage(request([{ text: 'yes' }], { taskId: asked.id }));
  check(outputOf(task).text === 'Hello Ada', task);
});

cell('files in', async () => {
  const client = await clientOf(GATEWAY, 'count');
  const part = { raw: 'YWJj', filename: 'a.bin', mediaType: 'application/octet-stream' };
  const output = outputOf(await client.sendMessage(request([part])));
  check(output.sizes['a.bin'] === 3, output);
});

cell('files out', async () => {
  const client = await clientOf(GATEWAY, 'paint');
  const task = await client.sendMessage(request([{ data: {} }]));
  const files = Object.fromEntries(task.artifacts.map(({ parts: [part] }) => [part.filename, part.content]));
  check(Buffer.from(files['dot.png'].value).includes('PNG'), files);
  const table = await (await fetch(files['table.csv'].value)).text();
  check(table.length === TABLE_BYTES, String(table.length));
});

cell('errors', async () => {
  const client = await clientOf(GATEWAY, 'fail');
  const task = await client.sendMessage(request([{ data: {} }]));
  check(TaskState[task.status.state] === 'TASK_STATE_FAILED' && JSON.stringify(task).includes('fuse'), task);
  await fails(() => client.getTask({ id: 'unknown', tenant: '' }), /TaskNotFound|not found/i);
});

cell('5 MB input', async () => {
  const output = await greet(GATEWAY, LARGE);
  check(output.length === LARGE.length, output);
});

cell('keys', async () => {
  await fails(() => greet(KEYED_GATEWAY, 'Ada'), REFUSED);
  const output = await greet(KEYED_GATEWAY, 'Ada', KEY);
  check(output.text === 'Hello Ada', output);
});

await fill();
