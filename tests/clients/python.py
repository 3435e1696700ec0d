"""The official Python SDK as a client of `toolbridge serve`. Prints one JSON object: what each scenario saw.

usage: python python.py <transport: JSON> <scenario>...

A transport is {"command": ..., "args": [...]} or {"url": ...}; "mode" in it is the SDK's own (by default the newest
revision that both sides speak, "legacy" for the newest one with sessions). LEDGER names the file of the ledger server, CONFIG the configuration.
"""

import asyncio
import contextlib
import json
import os
import sys

import httpx2
from mcp import Client, ClientSession, MCPError, StdioServerParameters, types
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult, Implementation

target = json.loads(sys.argv[1])
mode = target.pop("mode", "auto")
server = target["url"] if "url" in target else StdioServerParameters(**target)


def connect(name="python", **options):
    return Client(server, mode=mode, client_info=Implementation(name=name, version="1.0.0"), **options)


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


def run(client, code, **options):
    return client.call_tool("tool_search_code", {"code": code}, **options)


def call(tool, args):
    return f"return (await openclaw.tools.call({json.dumps(tool)}, {json.dumps(args)})).result.details"


async def revision(client):
    return client.protocol_version


async def list_tools(client):
    return [tool.name for tool in (await client.list_tools()).tools]


async def structured(client):
    result = await run(client, call("mcp:ledger:add", {"a": 2, "b": 3}))
    return {"text": text(result), "value": result.structured_content["value"]}


async def error(client):
    result = await run(client, call("mcp:ledger:fail", {}))
    return {"isError": result.is_error, "code": result.structured_content["error"]["code"]}


async def image(client):
    code = "const r = await openclaw.tools.call('mcp:ledger:draw', {}); return r.result.content"
    return [block.type for block in (await run(client, code)).content]


async def elicitation(_client):
    asked = []
    answers = [ElicitResult(action="accept", content={"allow": "once"}), ElicitResult(action="decline")]

    async def answer(_context, params):
        asked.append(params.message)
        return answers.pop(0)

    outcomes = []
    async with connect(elicitation_callback=answer) as client:
        for name in ["yes", "no"]:
            result = await run(client, call("mcp:ledger:wipe", {"id": name}))
            failed = result.structured_content["calls"][0].get("error")
            outcomes.append(failed["code"] if result.is_error else result.structured_content["value"])
    return {"asked": asked, "outcomes": outcomes}


async def progress(client):
    seen = []

    async def note(_progress, _total, message):
        seen.append(message)

    await run(client, call("mcp:ledger:wait", {"ms": 200}), progress_callback=note)
    return seen


async def cancel(client):
    before = ledger().count("wait begins")
    pending = asyncio.ensure_future(run(client, call("mcp:ledger:wait", {"ms": 60_000})))
    # The ledger says when the call has begun.
    while ledger().count("wait begins") == before:
        await run(client, "return 1")
    pending.cancel()
    [outcome] = await asyncio.gather(pending, return_exceptions=True)
    after = await run(client, "return 2")
    return {"rejected": isinstance(outcome, asyncio.CancelledError), "after": after.structured_content["value"]}


def ledger():
    with open(os.environ["LEDGER"], encoding="utf-8") as file:
        return file.read()


def resumed(client, run_id):
    return client.call_tool("tool_search_code", {"resume": run_id})


async def to_the_end(client, waiting):
    """Takes a run up until it has ended; gives its last answer and how often it was taken up."""
    result, rounds = waiting, 0
    while result.structured_content.get("status") == "waiting":
        rounds += 1
        result = await resumed(client, waiting.structured_content["runId"])
    return result, rounds


async def resume(client):
    waiting = await run(client, call("mcp:ledger:wait", {"ms": 600}) + " + ', and more'")
    run_id = waiting.structured_content["runId"]
    async with connect(name="stranger") as stranger:
        stolen = await resumed(stranger, run_id)
    result, rounds = await to_the_end(client, waiting)
    again = await resumed(client, run_id)
    return {
        "waited": rounds > 0, "pending": [call["tool"] for call in waiting.structured_content["pending"]],
        "value": result.structured_content["value"], "again": text(again), "stolen": stolen.is_error,
    }


async def two(_client):
    async with connect(name="one") as one, connect(name="two") as other:
        results = await asyncio.gather(run(one, "return 1"), run(other, "return 2"))
    return [result.structured_content["value"] for result in results]


async def reconnect(_client):
    """A lost connection of a revision with sessions: another one takes the session up by its id."""
    ids = []

    async def note(response):
        ids.extend(filter(None, [response.headers.get("mcp-session-id")]))

    async with httpx2.AsyncClient(event_hooks={"response": [note]}, timeout=60) as http:
        transport = streamable_http_client(server, http_client=http, terminate_on_close=False)
        async with Client(transport, mode="legacy") as first:
            await run(first, "return 1")
            handshake = first.session.initialize_result
    [session_id] = set(ids)
    async with httpx2.AsyncClient(headers={"mcp-session-id": session_id}, timeout=60) as http:
        async with streamable_http_client(server, http_client=http) as streams, ClientSession(*streams) as again:
            again.adopt(handshake)
            result = await run(again, "return 2")
            await http.delete(server)
            try:
                await run(again, "return 3")
                gone = False
            except MCPError:
                gone = True
    return {"value": result.structured_content["value"], "gone": gone}


async def taken_up_again(_client):
    """A lost connection of a revision without sessions: the run that waits is taken up over another connection."""
    async with connect() as first:
        waiting = await run(first, call("mcp:ledger:wait", {"ms": 600}))
    async with connect() as again:
        result, _rounds = await to_the_end(again, waiting)
    return {"status": waiting.structured_content["status"], "value": result.structured_content["value"]}


async def subscription(client):
    """The tools of mode `direct` before and after a server offers one more, told by `subscriptions/listen`."""
    before = await list_tools(client)
    async with client.listen(tools_list_changed=True) as events:
        honoured = events.honored.model_dump(exclude_none=True)
        await client.call_tool("ledger__grow", {"name": "late"})
        event = await anext(aiter(events))
    after = await list_tools(client)
    return {"honoured": honoured, "event": type(event).__name__, "more": sorted(set(after) - set(before))}


async def reloaded(_client):
    """The tools before and after the server's configuration file is replaced; the server tells that they changed."""
    told = asyncio.Event()

    async def note(message):
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with connect(message_handler=note) as client:
        before = await list_tools(client)
        with open(os.environ["CONFIG"], encoding="utf-8") as file:
            config = json.load(file)
        config["mcpServers"]["other"] = config["mcpServers"].pop("ledger")
        async with contextlib.AsyncExitStack() as stack:
            if mode == "auto":
                events = await stack.enter_async_context(client.listen(tools_list_changed=True))
            with open(os.environ["CONFIG"], "w", encoding="utf-8") as file:
                json.dump(config, file)
            while not any(name.startswith("other__") for name in await list_tools(client)):
                if mode == "auto":
                    await anext(aiter(events))
                else:
                    await told.wait()
                    told.clear()
        after = await list_tools(client)
    return {"before": sorted({name.split("__")[0] for name in before}), "after": sorted({name.split("__")[0] for name in after})}


async def main():
    scenarios = {
        "revision": revision, "list": list_tools, "structured": structured, "error": error, "image": image,
        "elicitation": elicitation, "progress": progress, "cancel": cancel, "resume": resume, "two": two,
        "reconnect": reconnect, "taken_up_again": taken_up_again, "subscription": subscription,
        "reloaded": reloaded,
    }
    report = {}
    async with connect() as client:
        for name in sys.argv[2:]:
            report[name] = await scenarios[name](client)
    print(json.dumps(report))


asyncio.run(main())
