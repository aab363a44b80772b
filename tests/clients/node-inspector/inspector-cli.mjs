// The command line of the MCP Inspector.
// page
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

function inspect(gateway, method, ...options) {
  const program = fileURLToPath(new URL('node_modules/.bin/mcp-inspector', import.meta.url));
  const words = ['--cli', `${gateway}/mcp`, '--transport', 'http', '--method', method, '--stored-auth-only', ...options];
  const { stdout, stderr } = spawnSync(program, words, { encoding: 'utf8', maxBuffer: 1 << 26 });
  return JSON.parse(stdout || stderr);
}

const greet = (gateway, name, ...options) =>
  inspect(gateway, 'tools/call', '--tool-name', 'greet', '--tool-arg', `name=${name}`, ...options);
// end page

import { GATEWAY, KEY, KEYED_GATEWAY, REFUSED, cell, check, fill } from './cells.mjs';

cell('discover', async () => {
  const { tools } = inspect(GATEWAY, 'tools/list');
  check(tools.some(({ name }) => name === 'greet'), tools);
});

cell('call', async () => {
  const result = greet(GATEWAY, 'Ada');
  check(result.structuredContent.text === 'Hello Ada', result);
});

cell('list', async () => {
  greet(GATEWAY, 'Ada');
  const { resources } = inspect(GATEWAY, 'resources/list');
  check(resources.some(({ uri }) => uri.startsWith('sinew://tasks/')), resources);
});

cell('files out', async () => {
  const { content } = inspect(GATEWAY, 'tools/call', '--tool-name', 'paint');
  check(content.some(({ type, uri }) => type === 'resource_link' && uri.startsWith('http')), content);
});

cell('errors', async () => {
  const failed = inspect(GATEWAY, 'tools/call', '--tool-name', 'fail');
  check(JSON.stringify(failed).includes('fuse'), failed);
});

cell('keys', async () => {
  check(REFUSED.test(JSON.stringify(greet(KEYED_GATEWAY, 'Ada'))), greet(KEYED_GATEWAY, 'Ada'));
  const result = greet(KEYED_GATEWAY, 'Ada', '--header', `Authorization: Bearer ${KEY}`);
  check(result.structuredContent.text === 'Hello Ada', result);
});

await fill();
