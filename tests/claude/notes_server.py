"""A tiny MCP server on standard input and output, in plain JSON-RPC: one tool, ``lookup``."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {
    "name": "lookup",
    "description": "Looks a word up",
    "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            version = params["protocolVersion"]
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "n", "version": "1"},
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"meaning of {params['arguments']['word']}"}]}
        case _:
            return {}


if len(sys.argv) > 1:
    # A gate: a named pipe. The server is not there until somebody has opened and closed it.
    with open(sys.argv[1], encoding="utf-8") as gate:
        gate.read()
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request["method"], request.get("params", {}))}
        print(json.dumps(reply), flush=True)
