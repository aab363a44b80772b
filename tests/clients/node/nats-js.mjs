// npm nats: the binding of A2A to NATS, without an SDK.
// page
import { randomUUID } from 'node:crypto';
import { headers } from 'nats';

const { NATS_URL, NATS_USER, NATS_PASSWORD, SINEW_NAMESPACE } = process.env;

/** Calls an operation of A2A; the name of the method is part of the subject. */
async function call(nc, agent, method, params) {
  const head = headers();
  head.set('A2A-Version', '1.0');
  const subject = `${SINEW_NAMESPACE}.v1.rpc.${agent}.${method}.${NATS_USER}`;
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
  const { result, error } = (await nc.request(subject, body, { headers: head, timeout: 600_000 })).json();
  if (error) throw new Error(error.message);
  return result;
}

function message(parts, { taskId, ...configuration } = {}) {
  return { message: { messageId: randomUUID(), role: 'ROLE_USER', parts, taskId }, configuration };
}

async function greet(nc, name) {
  const { task } = await call(nc, 'greet', 'SendMessage', message([{ data: { name } }]));
  return task.artifacts.at(-1).parts[0].data; // {text: 'Hello Ada', …}
}
// end page

import { connect } from 'nats';
import { LARGE, cell, check, fails, fill } from './cells.mjs';

const OPTIONS = { servers: NATS_URL, user: NATS_USER, pass: NATS_PASSWORD };

const open = (options) => connect({ ...OPTIONS, ...options });
const ENDED = ['COMPLETED', 'FAILED', 'CANCELED', 'REJECTED', 'INPUT_REQUIRED'];
const stateOf = (task) => task.status.state.replace('TASK_STATE_', '');

async function followed(nc, agent, method, params) {
  const events = nc.subscribe(`${SINEW_NAMESPACE}.v1.progress.>`);
  await nc.flush();
  const { task } = await call(nc, agent, method, params);
  let state = stateOf(task);
  let count = 0;
  if (ENDED.includes(state)) return { state, count };
  for await (const event of events) {
    if (event.subject.split('.')[3] !== task.id) continue;
    count += 1;
    const { statusUpdate } = event.json();
    if (statusUpdate) state = stateOf(statusUpdate);
    if (ENDED.includes(state)) break;
  }
  return { state, count };
}

cell('discover', async () => {
  const card = await call(await open(), 'greet', 'GetAgentCard', {});
  check(card.name === 'greet', card);
});

cell('call', async () => {
  const output = await greet(await open(), 'Ada');
  check(output.text === 'Hello Ada', output);
});

cell('stream', async () => {
  const seen = await followed(await open(), 'sleep', 'SendStreamingMessage', message([{ data: { seconds: 1 } }]));
  check(seen.state === 'COMPLETED' && seen.count > 1, seen);
});

const begin = (nc, seconds) => call(nc, 'sleep', 'SendMessage', message([{ data: { seconds } }], { returnImmediately: true }));

cell('resubscribe', async () => {
  const nc = await open();
  const { task } = await begin(nc, 3);
  const seen = await followed(nc, 'sleep', 'SubscribeToTask', { id: task.id });
  check(seen.state === 'COMPLETED', seen);
});

cell('list', async () => {
  const nc = await open();
  const { task } = await call(nc, 'greet', 'SendMessage', message([{ data: { name: 'Ada' } }]));
  const { tasks } = await call(nc, 'greet', 'ListTasks', { pageSize: 5 });
  check(tasks.some(({ id }) => id === task.id), tasks);
});

cell('cancel', async () => {
  const nc = await open();
  const { task } = await begin(nc, 60);
  const cancelled = await call(nc, 'sleep', 'CancelTask', { id: task.id });
  check(stateOf(cancelled) === 'CANCELED', cancelled);
});

cell('files out', async () => {
  const { task } = await call(await open(), 'paint', 'SendMessage', message([{ data: {} }]));
  const files = Object.fromEntries(task.artifacts.map(({ parts: [part] }) => [part.filename, part]));
  check(files['dot.png'].raw && files['table.csv'].url.startsWith('artifact://'), files);
});

cell('errors', async () => {
  const nc = await open();
  const { task } = await call(nc, 'fail', 'SendMessage', message([{ data: {} }]));
  check(stateOf(task) === 'FAILED' && JSON.stringify(task).includes('fuse'), task);
  await fails(() => call(nc, 'fail', 'GetTask', { id: 'unknown' }), /not found/);
});

cell('5 MB input', async () => {
  const nc = await open();
  await fails(() => greet(nc, LARGE), /MAX_PAYLOAD/);
  return "the server's max_payload, 1 MiB by default";
});

cell('keys', async () => {
  await fails(() => open({ pass: 'wrong', reconnect: false }), /uthorization/);
  const output = await greet(await open(), 'Ada');
  check(output.text === 'Hello Ada', output);
});

await fill();
