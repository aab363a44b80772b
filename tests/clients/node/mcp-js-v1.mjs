// The official SDK of MCP for JavaScript, version 1.
// page
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

async function connect(transport) {
  const client = new Client({ name: 'example', version: '1.0.0' }, { capabilities: { elicitation: {} } });
  // Asks the user of this program; `params.message` is the question.
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => ({ action: 'accept', content: { approved: true } }));
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

const callTool = (client, call, options) => client.callTool(call, undefined, options);
await cells({ connect, overHttp, overStdio, greet, callTool });
