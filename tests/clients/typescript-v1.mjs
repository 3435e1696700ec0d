// The official TypeScript SDK (version 1) as a client of `toolbridge serve`. Prints one JSON object: what each scenario saw.
//
// usage: node typescript-v1.mjs <folder with node_modules> <transport: JSON> <scenario>...
// A transport is {"command": …, "args": […], "env": {…}} or {"url": …, "token": …}.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, transportJson, ...scenarios] = process.argv.slice(2);
const require = createRequire(pathToFileURL(folder + '/'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const target = JSON.parse(transportJson);
function transport() {
  if (target.url === undefined) return new StdioClientTransport({ ...target, stderr: 'inherit' });
  const headers = target.token ? { Authorization: `Bearer ${target.token}` } : {};
  return new StreamableHTTPClientTransport(new URL(target.url), { requestInit: { headers } });
}

async function connect({ name = 'typescript-v1', elicit } = {}) {
  const client = new Client({ name, version: '1.0.0' }, { capabilities: elicit ? { elicitation: {} } : {} });
  if (elicit) client.setRequestHandler(types.ElicitRequestSchema, elicit);
  await client.connect(transport());
  return client;
}

const text = (result) => result.content.filter((block) => block.type === 'text').map((block) => block.text).join('\n');
const run = (client, code, options) =>
  client.callTool({ name: 'tool_search_code', arguments: { code } }, undefined, options);
const call = (id, args) => `return (await openclaw.tools.call(${JSON.stringify(id)}, ${JSON.stringify(args)})).result.details`;

const all = {
  async list(client) {
    const { tools } = await client.listTools();
    return tools.map((tool) => ({ name: tool.name, annotations: tool.annotations, output: !!tool.outputSchema }));
  },
  async value(client) {
    const result = await run(client, 'return 6 * 7');
    return { text: text(result), value: result.structuredContent.value, isError: result.isError };
  },
  async structured(client) {
    const result = await run(client, call('mcp:ledger:add', { a: 2, b: 3 }));
    return { text: text(result), value: result.structuredContent.value };
  },
  async search(client) {
    const result = await run(client, "return (await openclaw.tools.search('add two numbers')).map((hit) => hit.id)[0]");
    return text(result);
  },
  async error(client) {
    const result = await run(client, call('mcp:ledger:fail', {}));
    return { isError: result.isError, code: result.structuredContent.error.code, text: text(result) };
  },
  async unknown(client) {
    const result = await client.callTool({ name: 'no_such_tool', arguments: {} });
    return { isError: result.isError, code: result.structuredContent.code };
  },
  async image(client) {
    const result = await run(client, "const r = await openclaw.tools.call('mcp:ledger:draw', {}); return r.result.content");
    return result.content.map((block) => ({ type: block.type, mimeType: block.mimeType, bytes: block.data?.length }));
  },
  async nobody(client) {
    const result = await run(client, call('mcp:ledger:wipe', { id: 'nobody' }));
    return { isError: result.isError, text: text(result) };
  },
  async elicitation() {
    const asked = [];
    const answers = [{ action: 'accept', content: { allow: 'same arguments' } }, { action: 'decline' }];
    const client = await connect({ elicit: async ({ params }) => { asked.push(params.message); return answers.shift(); } });
    const outcomes = [];
    for (const id of ['yes', 'yes', 'no']) {
      const result = await run(client, call('mcp:ledger:wipe', { id }));
      outcomes.push(result.isError ? result.structuredContent.calls[0].error.code : result.structuredContent.value);
    }
    await client.close();
    return { asked, outcomes };
  },
  async progress(client) {
    const seen = [];
    const result = await run(client, call('mcp:ledger:wait', { ms: 200 }), { onprogress: (p) => seen.push(p) });
    return { text: text(result), grows: seen.every((p, i) => i === 0 || p.progress > seen[i - 1].progress), messages: seen.map((p) => p.message) };
  },
  async patience() {
    // The person takes longer than the client's own timeout; signs of life keep the request open.
    const client = await connect({
      elicit: async () => { await new Promise((resolve) => setTimeout(resolve, 2500)); return { action: 'accept' }; },
    });
    const result = await run(client, call('mcp:ledger:wipe', { id: 'patience' }),
      { timeout: 1500, resetTimeoutOnProgress: true, onprogress: () => {} });
    await client.close();
    return result.structuredContent.value;
  },
  async cancel(client) {
    const controller = new AbortController();
    const seen = new Promise((resolve) => setTimeout(resolve, 60_000).unref());
    void seen;
    const pending = run(client, call('mcp:ledger:wait', { ms: 60_000 }), {
      signal: controller.signal, onprogress: () => {}, timeout: 30_000,
    });
    // The ledger says when the call has begun; the driver of this script looks at it.
    for (;;) {
      const begun = await client.callTool({ name: 'tool_search_code', arguments: { code: 'return 1' } });
      if (begun.structuredContent.ok && (await import('node:fs')).readFileSync(process.env.LEDGER, 'utf8').includes('wait begins')) break;
    }
    controller.abort('not wanted any more');
    const rejected = await pending.then(() => false, () => true);
    const after = await run(client, 'return 2');
    return { rejected, after: after.structuredContent.value };
  },
  async logging(client) {
    const lines = [];
    client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => lines.push([params.level, params.data]));
    await client.setLoggingLevel('warning');
    await run(client, "console.log('quiet'); console.warn('loud'); return 1");
    return lines;
  },
  async changed() {
    const client = await connect();
    const told = new Promise((resolve) =>
      client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => resolve(true)));
    const before = (await client.listTools()).tools.length;
    await client.callTool({ name: 'ledger__grow', arguments: { name: 'late' } });
    await told;
    const after = (await client.listTools()).tools.length;
    await client.close();
    return after - before;
  },
  async direct(client) {
    const { tools } = await client.listTools();
    const add = tools.find((tool) => tool.name === 'ledger__add');
    const sum = await client.callTool({ name: 'ledger__add', arguments: { a: 2, b: 3 } });
    const bad = await client.callTool({ name: 'ledger__add', arguments: { a: 'x' } });
    const drawn = await client.callTool({ name: 'ledger__draw', arguments: {} });
    return {
      title: add.title, annotations: add.annotations, output: add.outputSchema.properties, sum,
      bad: { isError: bad.isError, code: bad._meta['toolbridge/error'].code }, drawn: drawn.content.map((block) => block.type),
    };
  },
  async tools(client) {
    const names = (await client.listTools()).tools.map((tool) => tool.name);
    const found = await client.callTool({ name: 'tool_search', arguments: { query: 'add two numbers' } });
    const described = await client.callTool({ name: 'tool_describe', arguments: { ids: ['mcp:ledger:add'] } });
    const called = await client.callTool({ name: 'tool_call', arguments: { id: 'mcp:ledger:add', args: { a: 1, b: 1 } } });
    const failed = await client.callTool({ name: 'tool_call', arguments: { id: 'mcp:ledger:nothing', args: {} } });
    return {
      names, found: found.structuredContent.hits[0].id, described: described.structuredContent.results[0].id,
      called: called.structuredContent.result.details, text: text(called),
      failed: { isError: failed.isError, code: failed.structuredContent.code },
    };
  },
  async resume(client) {
    const waiting = await run(client, call('mcp:ledger:wait', { ms: 600 }) + " + ', and more'");
    let result = waiting;
    let rounds = 0;
    while (result.structuredContent.status === 'waiting') {
      rounds += 1;
      result = await client.callTool({ name: 'tool_search_code', arguments: { resume: waiting.structuredContent.runId } });
    }
    const pending = waiting.structuredContent.pending.map((call) => call.tool);
    const again = await client.callTool({ name: 'tool_search_code', arguments: { resume: waiting.structuredContent.runId } });
    const stranger = await connect();
    const stolen = await stranger.callTool({ name: 'tool_search_code', arguments: { resume: waiting.structuredContent.runId } });
    await stranger.close();
    return { waited: rounds > 0, pending, value: result.structuredContent.value, again: text(again), stolen: stolen.isError };
  },
  async two() {
    const clients = await Promise.all([connect({ name: 'one' }), connect({ name: 'two' })]);
    const results = await Promise.all(clients.map((client, index) => run(client, `return ${index}`)));
    await Promise.all(clients.map((client) => client.close()));
    return results.map((result) => result.structuredContent.value);
  },
  async reconnect() {
    const first = await connect();
    const session = first.transport.sessionId;
    await run(first, 'return 1');
    // The connection is lost, the session is not: another transport takes it up.
    const headers = target.token ? { Authorization: `Bearer ${target.token}` } : {};
    const again = new Client({ name: 'typescript-v1', version: '1.0.0' });
    const resumed = new StreamableHTTPClientTransport(new URL(target.url), { sessionId: session, requestInit: { headers } });
    await again.connect(resumed);
    const result = await run(again, 'return 2');
    await resumed.terminateSession();
    const gone = await run(again, 'return 3').then(() => false, () => true);
    return { kept: resumed.sessionId === undefined || resumed.sessionId === session, value: result.structuredContent.value, gone };
  },
};

const report = {};
const client = await connect();
for (const scenario of scenarios) report[scenario] = await all[scenario](client);
await client.close();
console.log(JSON.stringify(report));
