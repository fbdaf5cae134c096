"""An MCP server on standard input and output, for a kit's tests: one tool. Run as a script; standard library only."""

from __future__ import annotations

import json
import sys

TOOL = {
    "name": "look_up_in_the_kit",
    "description": "Looks a word up",
    "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}


def main() -> None:
    """Answer JSON-RPC requests, a line each, until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        results = {
            "initialize": {
                "protocolVersion": request.get("params", {}).get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "kit", "version": "1"},
            },
            "tools/list": {"tools": [TOOL]},
            "tools/call": {"content": [{"type": "text", "text": "found"}]},
        }
        if "id" in request:
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": results.get(request["method"], {})}
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
