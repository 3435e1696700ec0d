"""OpenAI's official Python client in front of the gateway. Prints one JSON object: what each scenario saw.

usage: python openai.py <base URL> <key> <scenario>...
"""

import asyncio
import json
import sys

# The folder of this file comes first in the path, and the file is called like the library.
sys.path.pop(0)

import openai  # noqa: E402

base_url, key, *scenarios = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0)
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city, as the client knows it.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS = [{"type": "function", "function": WEATHER}]


def ask(text):
    return [{"role": "user", "content": text}]


def chat():
    answer = client.chat.completions.create(model="mock:code", messages=ask("chat"))
    choice = answer.choices[0]
    return [choice.message.content, choice.finish_reason, choice.message.tool_calls, len(answer.usage.toolbridge["turns"])]


def stream():
    said, ends, usage = [], [], None
    for chunk in client.chat.completions.create(
        model="mock:code", messages=ask("stream"), stream=True, stream_options={"include_usage": True}
    ):
        for choice in chunk.choices:
            said.append(choice.delta.content or "")
            ends += [choice.finish_reason] if choice.finish_reason else []
        usage = chunk.usage or usage
    return ["".join(said), ends, usage.prompt_tokens > 0]


def converse(text, stream=False, model="mock:code"):
    """Answers every call of the client's own tool until there is a text; gives it with the number of calls in each message."""
    messages, calls = ask(text), []
    for _ in range(5):
        if stream:
            with client.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(model=model, messages=messages, tools=TOOLS).choices[0].message
        if not message.tool_calls:
            return [message.content, calls]
        calls.append(len(message.tool_calls))
        messages.append(message.to_dict())
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{text}: sun in {city}"})


def tools():
    return converse("tools")


def tools_streamed():
    return converse("streamed tools", stream=True)


def parallel():
    async def both():
        return await asyncio.gather(*(asyncio.to_thread(converse, f"parallel {which}") for which in ("one", "two")))

    return asyncio.run(both())


def agent_parallel():
    async def both():
        asked = [("one", False, "mock:code+agent"), ("two", False, "mock:direct+agent"), ("three", True, "mock:code+agent")]
        return await asyncio.gather(
            *(asyncio.to_thread(converse, f"agent parallel {which}", stream, model) for which, stream, model in asked)
        )

    return asyncio.run(both())


def agent_tools():
    return converse("agent programs", model="mock:code+agent")


def agent_tools_streamed():
    return converse("agent streams", stream=True, model="mock:direct+agent")


def agent_responses():
    return responses("agent responses", "mock:direct+agent")


def agent_responses_streamed():
    tools = [{"type": "function", **WEATHER, "strict": False}]
    with client.responses.stream(model="mock:direct+agent", input="agent responses streamed", tools=tools) as events:
        done = [event.item.type for event in events if event.type == "response.output_item.done"]
        call = events.get_final_response().output[-1]
    return [done, call.name, json.loads(call.arguments), call.call_id.startswith("call_")]


def responses(text="responses", model="mock:code"):
    tools = [{"type": "function", **WEATHER, "strict": False}]
    items = ask(text)
    answer = client.responses.create(model=model, input=items, tools=tools)
    call = answer.output[-1]
    items += [item.to_dict() for item in answer.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sun"})
    final = client.responses.create(model=model, input=items, tools=tools)
    return [call.type, call.name, json.loads(call.arguments), final.output_text, final.usage.total_tokens > 0]


def responses_streamed():
    with client.responses.stream(model="mock:code", input="streamed responses") as events:
        said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        return [said, events.get_final_response().output_text]


def errors():
    def caught(**changed):
        who = openai.OpenAI(base_url=base_url, api_key=changed.pop("key", key), max_retries=0)
        try:
            who.chat.completions.create(**{"model": "mock:code", "messages": ask("errors"), **changed})
        except openai.APIStatusError as error:
            return [type(error).__name__, error.status_code, error.code, error.param]

    return [caught(key="wrong"), caught(n=2), caught(messages=[]), caught(), caught()]


def broken_stream():
    said = []
    try:
        for chunk in client.chat.completions.create(model="mock:code", messages=ask("broken"), stream=True):
            said += [choice.delta.content for choice in chunk.choices if choice.delta.content]
    except openai.APIError as error:
        return [len(said) > 0, type(error).__name__, error.code]


def cancelled():
    events = client.chat.completions.create(model="mock:code", messages=ask("cancelled"), stream=True)
    first = next(iter(events)).choices[0].delta.content
    events.close()
    return len(first) > 0


def models():
    return [[model.id for model in client.models.list()], client.models.retrieve("mock").owned_by]


print(json.dumps({scenario: globals()[scenario]() for scenario in scenarios}))
