// Calls a gateway with the official SDK of A2A (npm @a2a-js/sdk), by JSON-RPC, REST and gRPC, blocking and as a stream.
//
// Usage: node a2a_client.mjs BASE_URL SKILL. Prints one JSON object for each binding.
import { randomUUID } from 'node:crypto';
import { GetTaskRequest, SendMessageRequest, TaskState } from '@a2a-js/sdk';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const [base, skill] = process.argv.slice(2);

function request(value) {
  const message = { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ data: { value } }], metadata: { skill } };
  return SendMessageRequest.fromJSON({ message });
}

const transports = [
  ['JSONRPC', () => new JsonRpcTransportFactory()],
  ['HTTP+JSON', () => new RestTransportFactory()],
  ['GRPC', () => new GrpcTransportFactory()],
];

for (const [binding, transport] of transports) {
  const factory = new ClientFactory({ transports: [transport()], preferredTransports: [binding] });
  const client = await factory.createFromUrl(base);
  const sent = await client.sendMessage(request('hello'));
  const task = await client.getTask(GetTaskRequest.fromJSON({ id: sent.id }));
  const kinds = [];
  let last;
  for await (const event of client.sendMessageStream(request('again'))) {
    kinds.push(event.payload.$case);
    last = event.payload.value.status?.state ?? last;
  }
  let refused = 'nothing';
  try {
    await client.getTask(GetTaskRequest.fromJSON({ id: 'unknown' }));
  } catch (error) {
    refused = error.constructor.name;
  }
  console.log(JSON.stringify({
    binding,
    state: TaskState[task.status.state],
    data: task.artifacts?.[0]?.parts?.[0]?.content?.value,
    first: kinds[0],
    ended: TaskState[last],
    refused,
  }));
}
