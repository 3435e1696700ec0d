// An MCP server whose every effect is written down: each call that runs appends one line to the file named by LEDGER.
// Beside that it has one tool for each kind of answer that a client must be able to get through the bridge.
//
// usage: LEDGER=<file> node ledger.mjs <folder with node_modules>
import { createRequire } from 'node:module';
import { appendFileSync, readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const require = createRequire(pathToFileURL(process.argv[2] + '/'));
const { McpServer } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { z } = require('zod');

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const note = (line) => appendFileSync(process.env.LEDGER, line + '\n');
const server = new McpServer({ name: 'ledger', version: '1.0.0' });

server.registerTool('add', {
  title: 'Add numbers', description: 'Add two numbers. Returns the sum.',
  inputSchema: { a: z.number(), b: z.number() }, outputSchema: { sum: z.number() },
  annotations: { readOnlyHint: true, openWorldHint: false },
}, async ({ a, b }) => ({ content: [{ type: 'text', text: `${a + b}` }], structuredContent: { sum: a + b } }));

server.registerTool('enter', {
  description: 'Enter an id in the ledger.', inputSchema: { id: z.string() },
}, async ({ id }) => { note(`enter ${id}`); return { content: [{ type: 'text', text: 'entered' }] }; });

server.registerTool('wipe', {
  description: 'Wipe the ledger.', inputSchema: { id: z.string() }, annotations: { destructiveHint: true },
}, async ({ id }) => { note(`wipe ${id}`); return { content: [{ type: 'text', text: 'wiped' }] }; });

server.registerTool('fail', { description: 'Fail, always.', inputSchema: {} },
  async () => ({ isError: true, content: [{ type: 'text', text: 'it can not be done' }] }));

server.registerTool('draw', { description: 'Draw a pixel.', inputSchema: {} }, async () => ({
  content: [{ type: 'text', text: 'a pixel' }, { type: 'image', data: PIXEL, mimeType: 'image/png' }],
}));

server.registerTool('wait', {
  description: 'Wait, with progress, until it is cancelled or the time is over.', inputSchema: { ms: z.number() },
}, async ({ ms }, { signal, sendNotification, _meta }) => {
  note('wait begins');
  const steps = 4;
  for (let step = 1; step <= steps && !signal.aborted; step++) {
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, ms / steps);
      signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
    });
    if (_meta?.progressToken !== undefined && !signal.aborted) {
      await sendNotification({
        method: 'notifications/progress',
        params: { progressToken: _meta.progressToken, progress: step, total: steps, message: `step ${step}` },
      });
    }
  }
  note(signal.aborted ? 'wait cancelled' : 'wait ends');
  return { content: [{ type: 'text', text: 'waited' }] };
});

server.registerTool('until', {
  description: 'Wait until somebody else enters a line in the ledger.', inputSchema: { line: z.string() },
}, async ({ line }) => {
  note(`until ${line}`);
  while (!readFileSync(process.env.LEDGER, 'utf8').split('\n').includes(line)) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return { content: [{ type: 'text', text: line }] };
});

server.registerTool('die', { description: 'End the server in the middle of a call.', inputSchema: {} },
  async () => process.exit(1));

server.registerTool('grow', { description: 'Offer one more tool.', inputSchema: { name: z.string() } }, async ({ name }) => {
  server.registerTool(name, { description: 'Offered later.', inputSchema: {} },
    async () => ({ content: [{ type: 'text', text: 'late' }] }));
  return { content: [{ type: 'text', text: 'grown' }] };
});

await server.connect(new StdioServerTransport());
