// Cells that both versions of the SDK of MCP fill, over HTTP and over stdio.
import { GATEWAY, KEY, KEYED_GATEWAY, LARGE, REFUSED, TABLE_BYTES, cell, check, fails, fill } from './cells.mjs';

export async function cells({ connect, overHttp, overStdio, greet, callTool }) {
  const servers = {
    http: () => overHttp(GATEWAY),
    stdio: () => overStdio(process.env.SINEW_PROGRAM, ['mcp', '--dev', process.env.SINEW_FOLDER]),
  };
  const withEach = (fills) => async () => {
    for (const [kind, server] of Object.entries(servers)) {
      const client = await connect(server());
      try {
        await fills(client, kind);
      } catch (error) {
        error.message = `${kind}: ${error.message}`;
        throw error;
      } finally {
        await client.close();
      }
    }
  };

  cell('discover', withEach(async (client) => {
    const { tools } = await client.listTools();
    check(tools.some(({ name }) => name === 'greet'), tools);
  }));

  cell('call', withEach(async (client) => {
    const output = await greet(client, 'Ada');
    check(output.text === 'Hello Ada', output);
  }));

  cell('stream', withEach(async (client) => {
    const progress = [];
    const call = { name: 'greet', arguments: { name: 'Ada' } };
    await callTool(client, call, { onprogress: ({ message }) => progress.push(message) });
    check(progress.some((message) => message?.includes('greet')), progress);
  }));

  const tasks = async (client) => (await client.listResources()).resources.map(({ uri }) => uri);

  cell('list', withEach(async (client) => {
    const { _meta } = await callTool(client, { name: 'greet', arguments: { name: 'Ada' } });
    const found = await tasks(client);
    check(found.includes(`sinew://tasks/${_meta['io.github.sinew-mesh/task']}`), found);
  }));

  cell('cancel', withEach(async (client) => {
    const before = await tasks(client);
    const aborting = new AbortController();
    const call = callTool(client, { name: 'sleep', arguments: { seconds: 60 } }, { signal: aborting.signal });
    call.catch(() => {});
    let uri;
    while (!uri) {
      for (const one of (await tasks(client)).filter((other) => !before.includes(other))) {
        if (JSON.stringify(await client.readResource({ uri: one })).includes('sleep')) uri = one;
      }
    }
    aborting.abort();
    while (!JSON.stringify(await client.readResource({ uri })).includes('TASK_STATE_CANCELED'));
  }));

  cell('approval', withEach(async (client) => {
    const result = await callTool(client, { name: 'ask', arguments: { name: 'Ada' } });
    check(result.structuredContent?.text === 'Hello Ada', result);
  }));

  cell('files out', withEach(async (client, kind) => {
    const { content } = await callTool(client, { name: 'paint', arguments: {} });
    const picture = content.find(({ type }) => type === 'image');
    check(Buffer.from(picture.data, 'base64').includes('PNG'), content);
    const { uri } = content.find(({ type }) => type === 'resource_link');
    const table = kind === 'http' ? await (await fetch(uri)).text() : (await client.readResource({ uri })).contents[0].text;
    check(table.length === TABLE_BYTES, String(table.length));
  }));

  cell('errors', withEach(async (client) => {
    const failed = await callTool(client, { name: 'fail', arguments: {} });
    check(failed.isError && JSON.stringify(failed).includes('fuse'), failed);
    const wrong = await callTool(client, { name: 'greet', arguments: { name: 7 } });
    check(wrong.isError && JSON.stringify(wrong).includes('name'), wrong);
    await fails(() => callTool(client, { name: 'nosuch', arguments: {} }), /nosuch/);
  }));

  cell('5 MB input', withEach(async (client, kind) => {
    if (kind === 'stdio') return fails(() => greet(client, LARGE), /more than \d+ bytes/);
    const output = await greet(client, LARGE);
    return check(output.length === LARGE.length, output);
  }));

  cell('keys', async () => {
    await fails(() => connect(overHttp(KEYED_GATEWAY)), REFUSED);
    const output = await greet(await connect(overHttp(KEYED_GATEWAY, KEY)), 'Ada');
    check(output.text === 'Hello Ada', output);
  });

  await fill();
}
