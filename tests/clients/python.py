"""The official Python SDK as a client of `toolbridge serve`. Prints one JSON object: what each scenario saw.

usage: python python.py <transport: JSON> <scenario>...
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult

target = json.loads(sys.argv[1])
server = target["url"] if "url" in target else StdioServerParameters(**target)


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


def run(client, code, **options):
    return client.call_tool("tool_search_code", {"code": code}, **options)


def call(tool, args):
    return f"return (await openclaw.tools.call({json.dumps(tool)}, {json.dumps(args)})).result.details"


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
    async with Client(server, elicitation_callback=answer) as client:
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


async def main():
    scenarios = {
        "list": list_tools, "structured": structured, "error": error, "image": image,
        "elicitation": elicitation, "progress": progress,
    }
    report = {}
    async with Client(server) as client:
        for name in sys.argv[2:]:
            report[name] = await scenarios[name](client)
    print(json.dumps(report))


asyncio.run(main())
