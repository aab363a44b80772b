// The official SDK of MCP for JavaScript, version 2.
// page
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

async function connect(transport) {
  const client = new Client({ name: 'example', version: '1.0.0' }, { capabilities: { elicitation: { form: {} } } });
  // Asks the user of this program; `params.message` is the question.
  client.setRequestHandler('elicitation/create', async ({ params }) => ({ action: 'accept', content: { approved: true } }));
  await client.connect(transport);
  return client;
}

function overHttp(gateway, key) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  return new StreamableHTTPClientTransport(new URL(`${gateway}/mcp`), { requestInit: { headers } });
}

const overStdio = (command, args) => new StdioClientTransport({ command, args });

async function greet(client, name) {
  const { structuredContent } = await client.callTool({ name: 'greet', arguments: { name } });
  return structuredContent; // {text: 'Hello Ada', …}
}
// end page

import { cells } from './mcp-cells.mjs';

const callTool = (client, call, options) => client.callTool(call, options);
await cells({ connect, overHttp, overStdio, greet, callTool });
