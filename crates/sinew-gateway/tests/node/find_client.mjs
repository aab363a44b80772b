// Finds and calls tools of a large mesh with the official SDK of MCP, as a model would.
//
// Usage: node find_client.mjs ADDRESS TASKS. TASKS is a JSON array of requests. Prints one JSON object: the sizes of what a model
// reads, and the name of the tool that was called for each request.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const client = new Client({ name: 'example', version: '1.0.0' });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const { tools } = await client.listTools();
const sizes = [];
const called = [];
for (const task of JSON.parse(process.argv[3])) {
  const found = (await client.callTool({ name: 'find_tools', arguments: { query: task, limit: 5 } })).structuredContent;
  sizes.push(JSON.stringify(found).length);
  const tool = found.tools[0].name;
  const { structuredContent } = await client.callTool({ name: 'call_tool', arguments: { tool, arguments: { value: task } } });
  called.push(structuredContent?.value === task ? tool : `${tool} failed`);
}
console.log(JSON.stringify({ listed: tools.length, declared: JSON.stringify(tools).length, found: Math.max(...sizes), called }));
await client.close();
