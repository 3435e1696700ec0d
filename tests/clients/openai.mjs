// OpenAI's official Node client in front of the gateway. Prints one JSON object: what each scenario saw.
//
// usage: node openai.mjs <folder with node_modules> <base URL> <key> <scenario>...
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, baseURL, apiKey, ...scenarios] = process.argv.slice(2);
const { OpenAI } = createRequire(pathToFileURL(folder + '/'))('openai');
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });

const weather = {
  name: 'get_weather', description: 'The weather in a city, as the client knows it.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};
const tools = [{ type: 'function', function: weather }];
const ask = (content) => [{ role: 'user', content }];

// Answers every call of the client's own tool until there is a text; gives it with the number of calls in each message.
async function converse(text, stream, model = 'mock:code') {
  const messages = ask(text);
  const calls = [];
  for (let turn = 0; turn < 5; turn++) {
    const body = { model, messages, tools };
    const answer = stream
      ? await client.chat.completions.stream(body).finalChatCompletion()
      : await client.chat.completions.create(body);
    const { message } = answer.choices[0];
    if (!message.tool_calls?.length) return [message.content, calls];
    calls.push(message.tool_calls.length);
    messages.push(message);
    for (const call of message.tool_calls) {
      const { city } = JSON.parse(call.function.arguments);
      messages.push({ role: 'tool', tool_call_id: call.id, content: `${text}: sun in ${city}` });
    }
  }
}

async function respond(text, model) {
  const tools = [{ type: 'function', ...weather, strict: false }];
  const items = ask(text);
  const answer = await client.responses.create({ model, input: items, tools });
  const call = answer.output.at(-1);
  items.push(...answer.output, { type: 'function_call_output', call_id: call.call_id, output: 'sun' });
  const final = await client.responses.create({ model, input: items, tools });
  return [call.type, call.name, JSON.parse(call.arguments), final.output_text, final.usage.total_tokens > 0];
}

const all = {
  async chat() {
    const answer = await client.chat.completions.create({ model: 'mock:code', messages: ask('chat') });
    const [{ message, finish_reason }] = answer.choices;
    return [message.content, finish_reason, message.tool_calls ?? null, answer.usage.toolbridge.turns.length];
  },
  async stream() {
    let said = '', usage;
    const ends = [];
    const body = { model: 'mock:code', messages: ask('stream'), stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await client.chat.completions.create(body)) {
      for (const choice of chunk.choices) {
        said += choice.delta.content ?? '';
        if (choice.finish_reason) ends.push(choice.finish_reason);
      }
      usage = chunk.usage ?? usage;
    }
    return [said, ends, usage.prompt_tokens > 0];
  },
  tools: () => converse('tools'),
  tools_streamed: () => converse('streamed tools', true),
  parallel: () => Promise.all(['one', 'two'].map((which) => converse(`parallel ${which}`))),
  responses: () => respond('responses', 'mock:code'),
  agent_parallel: () =>
    Promise.all([
      converse('agent parallel one', false, 'mock:code+agent'),
      converse('agent parallel two', false, 'mock:direct+agent'),
      converse('agent parallel three', true, 'mock:code+agent'),
    ]),
  agent_tools: () => converse('agent programs', false, 'mock:code+agent'),
  agent_tools_streamed: () => converse('agent streams', true, 'mock:direct+agent'),
  agent_responses: () => respond('agent responses', 'mock:direct+agent'),
  async agent_responses_streamed() {
    const tools = [{ type: 'function', ...weather, strict: false }];
    const events = client.responses.stream({ model: 'mock:direct+agent', input: 'agent responses streamed', tools });
    const done = [];
    for await (const event of events) if (event.type === 'response.output_item.done') done.push(event.item.type);
    const call = (await events.finalResponse()).output.at(-1);
    return [done, call.name, JSON.parse(call.arguments), call.call_id.startsWith('call_')];
  },
  async responses_streamed() {
    const events = client.responses.stream({ model: 'mock:code', input: 'streamed responses' });
    let said = '';
    for await (const event of events) if (event.type === 'response.output_text.delta') said += event.delta;
    return [said, (await events.finalResponse()).output_text];
  },
  async errors() {
    const caught = async ({ key = apiKey, ...changed }) => {
      const who = new OpenAI({ baseURL, apiKey: key, maxRetries: 0 });
      try {
        await who.chat.completions.create({ model: 'mock:code', messages: ask('errors'), ...changed });
      } catch (error) {
        return [error.constructor.name, error.status, error.code, error.param ?? null];
      }
    };
    return [await caught({ key: 'wrong' }), await caught({ n: 2 }), await caught({ messages: [] }), await caught({}), await caught({})];
  },
  async broken_stream() {
    let said = 0;
    try {
      const body = { model: 'mock:code', messages: ask('broken'), stream: true };
      for await (const chunk of await client.chat.completions.create(body)) said += chunk.choices[0]?.delta.content?.length ?? 0;
    } catch (error) {
      return [said > 0, error.constructor.name, error.code];
    }
  },
  async cancelled() {
    const events = await client.chat.completions.create({ model: 'mock:code', messages: ask('cancelled'), stream: true });
    for await (const chunk of events) {
      const first = chunk.choices[0].delta.content;
      events.controller.abort();
      return first.length > 0;
    }
  },
  async models() {
    const listed = [];
    for await (const model of client.models.list()) listed.push(model.id);
    return [listed, (await client.models.retrieve('mock')).owned_by];
  },
};

const seen = {};
for (const scenario of scenarios) seen[scenario] = await all[scenario]();
console.log(JSON.stringify(seen));
