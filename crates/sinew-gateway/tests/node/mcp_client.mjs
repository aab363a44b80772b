// Calls tools with the official SDK of MCP (npm @modelcontextprotocol/sdk) over streamable HTTP.
//
// Usage: node mcp_client.mjs ADDRESS. Prints one JSON object.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const client = new Client({ name: 'example', version: '1.0.0' }, { capabilities: { elicitation: {} } });
// A workflow that waits for a person asks the user of this client.
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => ({
  action: 'accept',
  content: { approved: true, comment: params.message },
}));
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const { tools } = await client.listTools();
const progress = [];
const single = await client.callTool(
  { name: 'single', arguments: { value: 'hello' } },
  undefined,
  { onprogress: ({ message }) => progress.push(message) },
);
const review = await client.callTool({ name: 'review', arguments: {} });
const task = single._meta['io.github.sinew-mesh/task'];
const read = await client.readResource({ uri: `sinew://tasks/${task}` });
console.log(JSON.stringify({
  tools: tools.map(({ name }) => name).sort(),
  single: single.structuredContent,
  progress,
  review: review.isError ?? false,
  state: JSON.parse(read.contents[0].text).status.state,
}));
await client.close();
