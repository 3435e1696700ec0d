"""An MCP server over Streamable HTTP, and the authorization server beside it.

usage: scripted_http.py MODE FOLDER [PORT]

Listens on 127.0.0.1 and writes its port to FOLDER/port. FOLDER/requests gets one line of JSON for each request.
"""

import base64
import hashlib
import json
import os
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE, FOLDER = sys.argv[1], sys.argv[2]
PORT = int(sys.argv[3]) if len(sys.argv) > 3 else 0
state = {"codes": {}, "tokens": set(), "refresh": set(), "issued": 0}
lock = threading.Lock()


def note(line):
    with lock, open(os.path.join(FOLDER, "requests"), "a") as file:
        file.write(json.dumps(line) + "\n")


def flag(name):
    return os.path.exists(os.path.join(FOLDER, name))


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def origin(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def respond(self, status, body=b"", kind="application/json", headers=()):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        note({"method": "GET", "path": url.path, "host": self.headers.get("Host"), "key": self.headers.get("X-Key")})
        if MODE.startswith("oauth") and url.path.startswith("/.well-known/oauth-protected-resource"):
            return self.respond(200, {"resource": self.origin() + "/mcp", "authorization_servers": [self.origin()]})
        if MODE.startswith("oauth") and url.path.startswith("/.well-known/oauth-authorization-server"):
            return self.respond(200, {
                "issuer": self.origin(), "authorization_endpoint": self.origin() + "/authorize",
                "token_endpoint": self.origin() + "/token", "registration_endpoint": self.origin() + "/register",
                "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
                "scopes_supported": ["read"], "grant_types_supported": ["authorization_code", "refresh_token"]})
        if MODE.startswith("oauth") and url.path == "/authorize":
            asked = dict(urllib.parse.parse_qsl(url.query))
            code = f"code-{len(state['codes'])}"
            state["codes"][code] = asked
            answer = {"code": code, "state": asked["state"] if MODE != "oauth-forged" else "forged"}
            where = asked["redirect_uri"] + "?" + urllib.parse.urlencode(answer)
            return self.respond(302, headers=[("Location", where)])
        self.respond(405 if url.path == "/mcp" else 404)

    def do_DELETE(self):
        self.respond(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urllib.parse.urlsplit(self.path)
        note({"method": "POST", "path": url.path, "host": self.headers.get("Host"), "key": self.headers.get("X-Key"),
              "authorization": self.headers.get("Authorization"),
              "rpc": json.loads(body).get("method") if url.path == "/mcp" else None})
        if url.path == "/register":
            asked = json.loads(body)
            return self.respond(201, {"client_id": "registered", "redirect_uris": asked["redirect_uris"]})
        if url.path == "/token":
            return self.token(dict(urllib.parse.parse_qsl(body.decode())))
        if MODE == "redirect" and self.headers.get("Host", "").startswith("127.0.0.1"):
            where = f"http://localhost:{self.server.server_address[1]}/mcp"
            return self.respond(307, headers=[("Location", where)])
        if MODE == "key" and self.headers.get("X-Key") != "canary-header":
            return self.respond(401, {"error": "no key"})
        if MODE == "broken":
            return self.respond(500, b"<html>oops</html>", "text/html")
        if MODE.startswith("oauth"):
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            if token not in state["tokens"] or flag("revoked-" + token):
                challenge = f'Bearer resource_metadata="{self.origin()}/.well-known/oauth-protected-resource/mcp"'
                return self.respond(401, {"error": "invalid_token"}, headers=[("WWW-Authenticate", challenge)])
        self.rpc(json.loads(body))

    def token(self, form):
        if form["grant_type"] == "authorization_code":
            asked = state["codes"].pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            if asked is None or asked["code_challenge"] != base64.urlsafe_b64encode(digest).decode().rstrip("="):
                return self.respond(400, {"error": "invalid_grant"})
        elif form["refresh_token"] not in state["refresh"]:
            return self.respond(400, {"error": "invalid_grant"})
        state["issued"] += 1
        access, refresh = f"access-canary-{state['issued']}", f"refresh-canary-{state['issued']}"
        state["tokens"].add(access)
        state["refresh"].add(refresh)
        self.respond(200, {"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh})

    def rpc(self, request):
        method = request.get("method")
        if "id" not in request:
            return self.respond(202)
        result = {}
        if method == "initialize":
            result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "scripted", "version": "0"}}
        elif method == "tools/list":
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ["echo", "die", "hang", "image"]]}
            if MODE == "bad-tool":
                result["tools"].insert(1, {"name": "bad", "inputSchema": 5})
        elif method == "tools/call":
            name = request["params"]["name"]
            if name == "die":
                os._exit(1)
            if name == "hang":
                time.sleep(600)
            if name == "image":
                result = {"content": [{"type": "image", "data": "aGk=" * 1_000_000, "mimeType": "image/png"}]}
            else:
                result = {"content": [{"type": "text", "text": json.dumps(request["params"].get("arguments"))}]}
        else:
            return self.respond(200, {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no"}})
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        if MODE.startswith("deep") and method == "tools/list":
            # By hand: the library's own writer goes down with the brackets too.
            schema = '{"not":' * 200 + '{"type":"string"}' + "}" * 200
            deep = '{"name":"too-deep","inputSchema":{"type":"object","properties":{"a":%s}}}' % schema
            text = json.dumps(answer).replace('"tools": [', '"tools": [' + deep + ",")
            text = text.replace('"name": "echo"', '"name": "echo", "description": "Cut here: \\ud83d"')
            if MODE == "deep-sse":
                return self.respond(200, f"event: message\ndata: {text}\n\n".encode(), "text/event-stream")
            return self.respond(200, text.encode())
        if MODE == "sse":
            progress = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
            events = "".join(f"event: message\ndata: {json.dumps(message)}\n\n" for message in [progress, answer])
            return self.respond(200, events.encode(), "text/event-stream")
        self.respond(200, answer)


server = ThreadingHTTPServer(("127.0.0.1", PORT), Server)
server.daemon_threads = True
with open(os.path.join(FOLDER, "port.tmp"), "w") as file:
    file.write(str(server.server_address[1]))
os.rename(os.path.join(FOLDER, "port.tmp"), os.path.join(FOLDER, "port"))
server.serve_forever()
