"""An MCP server over stdio that misbehaves in one way at a time.

usage: scripted.py MODE [FOLDER]

FOLDER holds what a mode remembers across restarts and what the test looks at: `calls` (one line for each call that took
effect), `starts`, `cancelled`, `release` (made by the test to let a server go on).
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

MODE = sys.argv[1]
FOLDER = sys.argv[2] if len(sys.argv) > 2 else None
write_lock = threading.Lock()


def path(name):
    return os.path.join(FOLDER, name)


def note(name, line):
    with open(path(name), "a") as file:
        file.write(line + "\n")


def wait_for(name):
    while not os.path.exists(path(name)):
        time.sleep(0.01)


def raw(text):
    with write_lock:
        sys.stdout.buffer.write(text if isinstance(text, bytes) else text.encode())
        sys.stdout.buffer.flush()


def send(message):
    text = json.dumps(message)
    if MODE == "bom-crlf":
        raw("\ufeff" + text + "\r\n")
    elif MODE == "noise":
        raw("Server ready\n[12:00] INFO x\n42\nnull\n" + "progress: 10%" + text + "\n")
    elif MODE == "batch":
        raw("[" + text + "]\n")
    else:
        raw(text + "\n")


def reply(request, result):
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def fail(request, code, message):
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})


def tool(name, **more):
    return {"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object"}, **more}


def text(value):
    return {"content": [{"type": "text", "text": value}]}


tools = [tool("echo"), tool("die"), tool("slow"), tool("half"), tool("env"), tool("swap")]
ODD_NAMES = ["calendar.respondToEvent", "resolve-library-id", "a/b", "1st", "delete", "typeof", "constructor", "__proto__",
             "then", "天气", "\u00e9", "e\u0301", "x" * 200, "a b", "mcp__x__y", "functions:read", "mcp_read"]


def list_tools(request):
    cursor = (request.get("params") or {}).get("cursor")
    if MODE == "pages":
        pages = {None: ("", ["one"]), "": ("2", ["two"]), "2": (None, ["three"])}
        following, names = pages[cursor]
        result = {"tools": [tool(name) for name in names]}
        if following is not None:
            result["nextCursor"] = following
        return reply(request, result)
    if MODE == "cursor-stands":
        return reply(request, {"tools": [tool("one")], "nextCursor": "again"})
    if MODE == "cursor-cycles":
        following = {None: "a", "a": "b", "b": "a"}[cursor]
        return reply(request, {"tools": [tool("one")], "nextCursor": following})
    if MODE == "page-fails-later":
        if os.path.exists(path("swapped")):
            if cursor is None:
                return reply(request, {"tools": [tool("new")], "nextCursor": "2"})
            note("failed-pages", "x")
            return fail(request, -32603, "database is down, password hunter2secret")
        return reply(request, {"tools": tools})
    if MODE == "bad-tools":
        return reply(request, {"tools": [
            tool("good"), tool(""), tool("no-schema-at-all", inputSchema="nonsense"), {"inputSchema": {"type": "object"}}, 7,
            tool("array", inputSchema={"type": "array"}), tool("twin"), tool("twin"), tool("output", outputSchema=3),
            tool("odd-title", title=5, annotations={"readOnlyHint": "yes"}), {"name": "bare"}, tool("last")]})
    if MODE == "deep-tools":
        # By hand: the library's own writer goes down with the brackets too.
        deep = lambda levels: '{"not":' * levels + '{"type":"string"}' + "}" * levels
        listed = [json.dumps(tool("good"))]
        for name, levels in [("deep-enough", 100), ("too-deep", 200), ("bottomless", 100_000)]:
            listed.append('{"name":"%s","inputSchema":{"type":"object","properties":{"a":%s}}}' % (name, deep(levels)))
        listed.append('{"name":"answers-too-deep","inputSchema":{"type":"object"},"outputSchema":%s}' % deep(200))
        listed.append('{"name":"deep-elsewhere","inputSchema":{"type":"object"},"_meta":{"x":%s}}' % deep(200))
        return raw('{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}\n' % (json.dumps(request["id"]), ",".join(listed)))
    if MODE == "odd-names":
        return reply(request, {"tools": [tool(name) for name in ODD_NAMES]})
    if MODE == "schemas":
        recursive = {"type": "object", "properties": {"child": {"$ref": "#/$defs/n"}},
                     "$defs": {"n": {"type": "object", "properties": {"child": {"$ref": "#/$defs/n"}}}}}
        pointer = {"type": "object", "properties": {"filter": {"anyOf": [{"type": "string"}]},
                   "other": {"$ref": "#/properties/filter/anyOf/0"}, "a/b~c": {"type": "string"},
                   "escaped": {"$ref": "#/properties/a~1b~0c"}, "missing": {"$ref": "#/$defs/nowhere"}}}
        return reply(request, {"tools": [tool("recursive", outputSchema=recursive), tool("pointer", inputSchema=pointer)]})
    if MODE == "half-characters":
        return reply(request, {"tools": [tool("emoji", description="Cut here: \ud83d"), tool("bytes")]})
    if MODE == "not-a-list":
        return reply(request, {"tools": "none"})
    if MODE == "never-lists":
        return None
    if MODE == "swap":
        return reply(request, {"tools": tools + ([tool("late")] if os.path.exists(path("swapped")) else [])})
    return reply(request, {"tools": tools})


def call(request):
    name = request["params"]["name"]
    arguments = request["params"].get("arguments") or {}
    if FOLDER:
        note("calls", name)
    if name == "die":
        if arguments.get("how") == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "half":
        raw(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": text("x" * 50)})[:60] + "\n")
        return
    if name == "half-then-exit":
        raw('{"jsonrpc":"2.0","id":%d,"result":{"content":[{"ty' % request["id"])
        os._exit(0)
    if name == "slow":
        token = request["params"].get("_meta", {}).get("progressToken")
        for step in range(int(arguments.get("steps", 0))):
            time.sleep(arguments.get("step_ms", 20) / 1000)
            send({"jsonrpc": "2.0", "method": "notifications/progress",
                  "params": {"progressToken": token, "progress": step + 1, "total": 10, "message": f"step {step + 1}"}})
        if arguments.get("hang"):
            return
        return reply(request, text("done"))
    if name == "swap":
        note("swapped", "x")
        reply(request, text("swapped"))
        return send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    if name == "env":
        return reply(request, text(json.dumps({"env": dict(os.environ), "cwd": os.getcwd()})))
    if name == "emoji":
        return reply(request, text("half of one: \ud83d, a whole one: \U0001f600"))
    if name == "bytes":
        return raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\xc3\xa9 \xc3"}]}}\n' % request["id"])
    if name == "unknown-by-code":
        return fail(request, -32602, f"Unknown tool: {name}")
    if name == "unknown-by-envelope":
        return reply(request, {**text(f"Unknown tool: {name}"), "isError": True})
    if name == "refused":
        return fail(request, -32602, "path: required; your token is canary-in-env")
    if name == "mixed":
        return reply(request, {"content": [
            {"type": "text", "text": "t"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///x", "name": "x"},
            {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "application/octet-stream", "blob": "AAEC"}}],
            "structuredContent": {"disagrees": True}})
    if name == "new-block":
        return reply(request, {"content": [{"type": "hologram", "data": [1, 2]}]})
    if name == "empty":
        return reply(request, {})
    if name == "list-structured":
        return reply(request, {"content": [], "structuredContent": [1, 2]})
    if name == "text-only":
        return reply(request, {"content": "bare"})
    if name == "not-a-result":
        return reply(request, 7)
    return reply(request, text(json.dumps(arguments)))


def main():
    if FOLDER:
        note("starts", str(os.getpid()))
    if MODE == "exits-at-once":
        print("cannot open database: canary-in-env", file=sys.stderr, flush=True)
        sys.exit(7)
    if MODE == "silent":
        time.sleep(600)
    if MODE == "noisy-stderr":
        sys.stderr.write("y" * 1_000_000)
        sys.stderr.flush()
    if MODE.startswith("grandchild"):
        child = subprocess.Popen(["sleep", "600"])
        note("grandchild", str(child.pid))
    if MODE == "grandchild-silent":
        time.sleep(600)
    if MODE == "dies-on-second-start" and len(open(path("starts")).readlines()) == 2:
        sys.exit(1)
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        if method == "initialize":
            if MODE == "modern-only":
                fail(request, -32022, "unsupported protocol version")
                continue
            if MODE == "refuses":
                fail(request, -32000, "no licence")
                continue
            if MODE == "wrong-handshake":
                reply(request, {"protocolVersion": 5})
                continue
            version = request["params"]["protocolVersion"]
            if MODE.startswith("version-"):
                version = MODE[len("version-"):]
            reply(request, {"protocolVersion": version, "capabilities": {"tools": {"listChanged": True}},
                            "serverInfo": {"name": "scripted", "version": "0"}})
        elif method == "server/discover" and MODE == "modern-only":
            reply(request, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete",
                            "ttlMs": 0, "cacheScope": "private",
                            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "0"}}})
        elif method == "tools/list":
            list_tools(request)
        elif method == "tools/call":
            threading.Thread(target=call, args=(request,), daemon=True).start()
        elif method == "notifications/cancelled":
            if FOLDER:
                note("cancelled", json.dumps(request["params"].get("reason")))
        elif "id" in request and method:
            fail(request, -32601, "method not found")


main()
