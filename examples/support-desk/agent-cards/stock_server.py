"""An MCP server over stdio with one tool, which returns the stock of a product. Needs no packages."""

import json
import sys

STOCK = {"lamp": 3, "chair": 0}
TOOL = {
    "name": "look_up",
    "description": "Tells how many pieces of a product are in stock.",
    "inputSchema": {"type": "object", "required": ["product"], "properties": {"product": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}


def answer(method, params):
    if method == "initialize":
        server = {"name": "stock", "version": "1.0.0"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        product = params["arguments"]["product"]
        told = {"product": product, "pieces": STOCK.get(product, 0)}
        return {"content": [{"type": "text", "text": json.dumps(told)}], "structuredContent": told}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
