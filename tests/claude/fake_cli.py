"""A stand-in for the Claude Code executable: speaks its stream-json, and fails in the way that it is told to.

The first argument names the way: it is baked into the launcher that `fake_cli` in conftest.py writes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

SESSION = "11111111-2222-4333-8444-555555555555"


def send(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def delta(text: str) -> None:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    send({"type": "stream_event", "uuid": "u", "session_id": SESSION, "event": event})


def assistant(*blocks: dict[str, Any]) -> None:
    send({"type": "assistant", "session_id": SESSION, "message": {"id": "m", "model": "fake", "content": list(blocks)}})


def result(request: dict[str, Any], **more: Any) -> None:
    whole = {"type": "result", "subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False}
    whole |= {"num_turns": 1, "session_id": SESSION, "user_message_uuids": [request["uuid"]], "result": ""}
    send(whole | more)


def turn(way: str, request: dict[str, Any]) -> None:
    send({"type": "system", "subtype": "init", "session_id": SESSION, "model": "fake", "tools": ["Bash"]})
    match way:
        case "noise":
            print("\x1b[?2004hWillkommen", flush=True)
            delta("one ")
            print('{"type": "assistant", "message"', flush=True)
            print('{"no": "type"}\n[1, 2]\n\n', flush=True)
            send({"type": "assistant", "message": {}})
            delta("two")
            result(request)
        case "exit-0":
            delta("half")
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(0)
        case "exit-3":
            print("no config\nbroken pipe of dreams", file=sys.stderr, flush=True)
            os._exit(3)
        case "leaves-a-child":
            subprocess.Popen(["cat", request["message"]["content"]])
            os._exit(3)
        case "killed":
            os.kill(os.getpid(), 9)
        case "long":
            assistant({"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "x" * 2_000_000}})
            content = [{"type": "tool_result", "tool_use_id": "t1", "content": "y" * 10_485_760}]
            send({"type": "user", "message": {"role": "user", "content": content}})
            send({"type": "system", "subtype": "padding", "data": "z" * (65 * 1024 * 1024)})
            assistant({"type": "text", "text": "é" * 3_000_000})
            result(request)
        case "parallel":
            names = ("a", "b")
            assistant(*({"type": "tool_use", "id": name, "name": "Bash", "input": {"n": name}} for name in names))
            for name in reversed(names):
                content = [{"type": "tool_result", "tool_use_id": name, "content": f"result of {name}"}]
                send({"type": "user", "message": {"role": "user", "content": content}})
            result(request)
        case "silent-text":
            result(request, result="only in the result")
        case "foreign-result":
            result({"uuid": "another"}, result="not yours")
            delta("yours")
            result(request)
        case "stderr":
            for number in range(2000):
                print(f"line {number} " + "e" * 100, file=sys.stderr)
            result(request)
        case "environment":
            delta(json.dumps(dict(os.environ)))
            result(request)
        case "stubborn":
            delta("working")
            while True:
                if not sys.stdin.readline():
                    signal.pause()
        case _:
            delta("fine")
            result(request)


def main() -> None:
    way = sys.argv[1]
    if way == "dead-at-once":
        print("cannot start: no space left", file=sys.stderr, flush=True)
        os._exit(1)
    if way == "early-noise":
        for number in range(500):
            print(f"[debug] {number}")
    if way == "never-ready":
        sys.stdin.readlines()
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "control_request":
            answer = {"subtype": "success", "request_id": message["request_id"], "response": {}}
            send({"type": "control_response", "response": answer})
        elif message["type"] == "user":
            turn(way, message)
            if way == "dies-later":
                os._exit(0)


if __name__ == "__main__":
    main()
