// The tools that the protocol's conformance suite calls, as an MCP server.
//
// usage: node conformance.mjs <folder with node_modules>
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(pathToFileURL(process.argv[2] + '/'));
const { Server } = require('@modelcontextprotocol/sdk/server/index.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { CallToolRequestSchema, ListToolsRequestSchema } = require('@modelcontextprotocol/sdk/types.js');

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const text = (words) => ({ type: 'text', text: words });
const image = { type: 'image', data: PIXEL, mimeType: 'image/png' };
const resource = { type: 'resource', resource: { uri: 'test://embedded-resource', mimeType: 'text/plain', text: 'embedded' } };
const pause = () => new Promise((resolve) => setTimeout(resolve, 50));

const tools = {
  test_simple_text: () => [text('This is a simple text response for testing.')],
  test_image_content: () => [image],
  test_audio_content: () => [{ type: 'audio', data: 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=', mimeType: 'audio/wav' }],
  test_embedded_resource: () => [resource],
  test_multiple_content_types: () => [text('Multiple content types test:'), image, resource],
  test_error_handling: () => { throw new Error('This tool intentionally returns an error for testing'); },
  test_reconnection: async () => { await pause(); return [text('still there')]; },
  async test_tool_with_progress({ sendNotification, _meta }) {
    for (const progress of [0, 50, 100]) {
      const params = { progressToken: _meta?.progressToken, progress, total: 100 };
      if (_meta?.progressToken !== undefined) await sendNotification({ method: 'notifications/progress', params });
      await pause();
    }
    return [text('done')];
  },
};

const server = new Server({ name: 'conformance', version: '1.0.0' }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, async () => ({
  tools: Object.keys(tools).map((name) => ({ name, description: `For the scenario of ${name}.`, inputSchema: { type: 'object' } })),
}));
server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
  try {
    return { content: await tools[params.name](extra) };
  } catch (error) {
    return { isError: true, content: [text(error.message)] };
  }
});
await server.connect(new StdioServerTransport());
