"""A server of MCP for tests, over pipes, or over HTTP with the argument `http` (the first line says the port)."""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

NUMBERS = {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
SUM = {"type": "object", "required": ["sum"], "properties": {"sum": {"type": "number"}}}
ANY = {"type": "object"}
READS = {"readOnlyHint": True}
TOOLS = [
    {"name": "add", "description": "Adds two numbers.", "inputSchema": NUMBERS, "outputSchema": SUM},
    {"name": "chatter", "description": "Tells its progress without end.", "inputSchema": ANY},
    {"name": "flood", "description": "Says 9 MB in one line.", "inputSchema": ANY},
    {"name": "freeze", "description": "Stops.", "inputSchema": ANY},
    {"name": "noise", "description": "Says what is not an answer.", "inputSchema": ANY, "annotations": READS},
    {"name": "fail", "description": "Fails.", "inputSchema": ANY},
    {"name": "json", "description": "Says JSON as text.", "inputSchema": ANY},
    {"name": "key", "description": "Says what it was given.", "inputSchema": ANY},
    {"name": "leave", "description": "Ends the server.", "inputSchema": ANY},
    {"name": "picture", "description": "Draws.", "inputSchema": ANY},
    {"name": "wait", "description": "Waits for ever.", "inputSchema": ANY},
]


def read(name, default):
    """Content of a file beside the server, which tests write."""
    try:
        with open(name) as file:
            return json.load(file)
    except FileNotFoundError:
        return default


def more_tools():
    return read("tools.json", [])


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def call(name, arguments, meta, tell):
    if name == "add":
        total = {"sum": arguments["a"] + arguments["b"]}
        return {"content": text(json.dumps(total))["content"], "structuredContent": total}
    if name == "chatter":
        print("x" * (2 << 20), end="", file=sys.stderr, flush=True)
        tell({"progressToken": meta["progressToken"], "progress": 0, "message": "the key is " + os.environ["KEY"]})
        for number in range(2_000):
            tell({"progressToken": meta["progressToken"], "progress": number, "message": "y" * 2_000})
        return text("told")
    if name == "flood":
        return text("x" * (9 << 20))
    if name == "freeze":
        threading.Event().wait()
    if name == "noise":
        for number in range(50_000):
            print("[" * 100, number, "not JSON")
            print("not a word for a model", file=sys.stderr)
        return text("quiet")
    if name == "fail":
        return {**text("no such file: \u001b[31m/etc/x of " + os.environ.get("KEY", "")), "isError": True}
    if name == "json":
        return text("[1, 2]")
    if name == "key":
        return text(" ".join(sorted(f"{key}={value}" for key, value in os.environ.items() if key in ("KEY", "HOME", "USER"))))
    if name == "picture":
        return {"content": [{"type": "image", "data": "YWJj", "mimeType": "image/png"}, *text("drawn")["content"]]}
    if name == "wait":
        with open("pid", "w") as file:
            file.write(str(os.getpid()))
        tell({"progressToken": meta["progressToken"], "progress": 1, "total": 2, "message": "half"})
        return None
    os._exit(3)


def answer(request, tell):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS + more_tools()}
    if method == "tools/call":
        if params["name"] not in [tool["name"] for tool in TOOLS]:
            if params["name"] in [tool["name"] for tool in more_tools()]:
                return read("answers.json", {}).get(params["name"], text("more"))
            raise LookupError(f"no tool {params['name']}")
        return call(params["name"], params.get("arguments", {}), params.get("_meta", {}), tell)
    raise LookupError(method)


def respond(request, tell):
    try:
        result = answer(request, tell)
    except LookupError as error:
        return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": str(error)}}
    return result and {"jsonrpc": "2.0", "id": request["id"], "result": result}


class Handler(BaseHTTPRequestHandler):
    limited = set()

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("X-Key") != "s3cret-canary":
            return self.say(401, b"")
        if "id" not in request:
            return self.say(202, b"")
        # /mcp/METHOD/SECONDS limits the rate of a method once.
        _, _, *limit = self.path.split("/")
        if limit and limit[0] == request["method"].replace("/", ".") and self.path not in self.limited:
            self.limited.add(self.path)
            return self.say(429, b"slow down", {"Retry-After": limit[1]})
        self.say(200, json.dumps(respond(request, lambda told: None)).encode())

    def do_GET(self):
        self.say(405, b"")

    do_DELETE = do_GET

    def say(self, status, body, headers={}):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def pipes():
    with open("starts", "a") as file:
        print(os.getpid(), file=file)
    print("a word of its own", file=sys.stderr, flush=True)

    def say(message):
        print(json.dumps(message), flush=True)

    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            said = respond(request, lambda told: say({"jsonrpc": "2.0", "method": "notifications/progress", "params": told}))
            if said:
                say(said)


if sys.argv[1:] == ["http"]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
else:
    pipes()
