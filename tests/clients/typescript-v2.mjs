// The official TypeScript SDK (version 2) as a client of `toolbridge serve`, with the revision it negotiates by itself. Prints
// one JSON object: what each scenario saw.
//
// usage: node typescript-v2.mjs <folder with node_modules> <transport: JSON> <scenario>...
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, transportJson, ...scenarios] = process.argv.slice(2);
const require = createRequire(pathToFileURL(folder + '/'));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const target = JSON.parse(transportJson);
function transport() {
  if (target.url === undefined) return new StdioClientTransport({ ...target, stderr: 'inherit' });
  const headers = target.token ? { Authorization: `Bearer ${target.token}` } : {};
  return new StreamableHTTPClientTransport(new URL(target.url), { requestInit: { headers } });
}

async function connect(elicit) {
  const client = new Client({ name: 'typescript-v2', version: '1.0.0' },
    { capabilities: elicit ? { elicitation: { form: {} } } : {}, versionNegotiation: { mode: 'auto' } });
  if (elicit) client.setRequestHandler('elicitation/create', elicit);
  await client.connect(transport());
  return client;
}

const text = (result) => result.content.filter((block) => block.type === 'text').map((block) => block.text).join('\n');
const run = (client, code, options) => client.callTool({ name: 'tool_search_code', arguments: { code } }, options);
const call = (id, args) => `return (await openclaw.tools.call(${JSON.stringify(id)}, ${JSON.stringify(args)})).result.details`;

const all = {
  revision: async (client) => client.getNegotiatedProtocolVersion(),
  list: async (client) => (await client.listTools()).tools.map((tool) => tool.name),
  async structured(client) {
    const result = await run(client, call('mcp:ledger:add', { a: 2, b: 3 }));
    return { text: text(result), value: result.structuredContent.value };
  },
  async error(client) {
    const result = await run(client, call('mcp:ledger:fail', {}));
    return { isError: result.isError, code: result.structuredContent.error.code };
  },
  async image(client) {
    const result = await run(client, "const r = await openclaw.tools.call('mcp:ledger:draw', {}); return r.result.content");
    return result.content.map((block) => block.type);
  },
  async nobody(client) {
    return text(await run(client, call('mcp:ledger:wipe', { id: 'nobody' })));
  },
  async elicitation() {
    const asked = [];
    const answers = [{ action: 'accept', content: { allow: 'once' } }, { action: 'decline' }];
    const client = await connect(async ({ params }) => { asked.push(params.message); return answers.shift(); });
    const outcomes = [];
    for (const id of ['yes', 'no']) {
      const result = await run(client, call('mcp:ledger:wipe', { id }));
      outcomes.push(result.isError ? result.structuredContent.calls[0].error.code : result.structuredContent.value);
    }
    await client.close();
    return { asked, outcomes };
  },
  async progress(client) {
    const seen = [];
    await run(client, call('mcp:ledger:wait', { ms: 200 }), { onprogress: (p) => seen.push(p.message) });
    return seen;
  },
};

const report = {};
const client = await connect();
for (const scenario of scenarios) report[scenario] = await all[scenario](client);
await client.close();
console.log(JSON.stringify(report));
