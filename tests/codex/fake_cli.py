"""A stand-in for Codex's app-server: speaks its JSON-RPC, and fails in the way that it is told to.

The first argument names the way: it is baked into the launcher that `fake_cli` in conftest.py writes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

THREAD = "11111111-2222-4333-8444-555555555555"
TURN = "turn-1"
USAGE = {"totalTokens": 3, "inputTokens": 2, "cachedInputTokens": 0, "outputTokens": 1, "reasoningOutputTokens": 0}


def send(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def notify(method: str, **params: Any) -> None:
    send({"method": method, "params": {"threadId": THREAD, "turnId": TURN} | params})


def delta(text: str) -> None:
    notify("item/agentMessage/delta", itemId="m", delta=text)


def turn(identity: str, status: str) -> dict[str, Any]:
    return {"id": identity, "items": [], "status": status, "error": None}


def completed(identity: str = TURN, status: str = "completed") -> None:
    send({"method": "turn/completed", "params": {"threadId": THREAD, "turn": turn(identity, status)}})


def command(identity: str, output: str | None = None, text: str = "run") -> dict[str, Any]:
    item = {"type": "commandExecution", "id": identity, "command": text, "commandActions": [], "cwd": "/"}
    return {**item, "status": "completed" if output is not None else "inProgress", "aggregatedOutput": output}


def started(item: dict[str, Any]) -> None:
    notify("item/started", item=item, startedAtMs=1)


def ended(item: dict[str, Any]) -> None:
    notify("item/completed", item=item, completedAtMs=1)


def ask(method: str, **params: Any) -> Any:
    """A question to the client; its answer."""
    send({"id": f"ask-{method}", "method": method, "params": {"threadId": THREAD, "turnId": TURN, **params}})
    return json.loads(sys.stdin.readline())["result"]


def run(way: str, message: str) -> None:
    match way:
        case "noise":
            print("\x1b[?2004hWillkommen", flush=True)
            delta("one ")
            print('{"method": "item/agentMessage/delta"', flush=True)
            print('{"no": "type"}\n[1, 2]\n\n', flush=True)
            notify("item/agentMessage/delta", itemId=7)
            sys.stdout.buffer.write(b"caf\xc3\n")
            delta("two")
            completed()
        case "exit-0":
            delta("half")
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(0)
        case "exit-3":
            print("no config\nbroken pipe of dreams", file=sys.stderr, flush=True)
            os._exit(3)
        case "leaves-a-child":
            subprocess.Popen(["cat", message])
            os._exit(3)
        case "killed":
            os.kill(os.getpid(), 9)
        case "long":
            started(command("t1", text="x" * 2_000_000))
            ended(command("t1", "y" * 10_485_760))
            notify("padding", data="z" * (65 * 1024 * 1024))
            ended({"type": "agentMessage", "id": "m", "text": "é" * 3_000_000})
            completed()
        case "parallel":
            for name in ("a", "b"):
                started(command(name, text=name))
            for name in ("b", "a"):
                ended(command(name, f"result of {name}"))
            completed()
        case "silent-text":
            ended({"type": "agentMessage", "id": "m", "text": "only in the item"})
            ended({"type": "reasoning", "id": "r", "summary": ["only ", "thought"]})
            completed()
        case "foreign":
            notify("item/agentMessage/delta", threadId="other", itemId="o", delta="not yours")
            completed("another turn")
            delta("yours")
            completed()
        case "cumulative":
            for count in (10, 20):
                total = {**USAGE, "inputTokens": count * 100}
                notify("thread/tokenUsage/updated", tokenUsage={"last": USAGE, "total": total})
            completed()
        case "asks":
            answers = [
                ask("item/commandExecution/requestApproval", itemId="c", command="rm -rf /"),
                ask("item/fileChange/requestApproval", itemId="f"),
                ask("item/tool/requestUserInput", itemId="q", questions=[]),
                ask("mcpServer/elicitation/request", serverName="s", message="your password?"),
                ask("item/permissions/requestApproval", itemId="p"),
                ask("something/new"),
            ]
            delta(json.dumps(answers))
            completed()
        case "stderr":
            for number in range(2000):
                print(f"line {number} " + "e" * 100, file=sys.stderr)
            completed()
        case "environment":
            delta(json.dumps(dict(os.environ)))
            completed()
        case "stops-itself":
            completed(status="interrupted")
        case "stubborn":
            delta("working")
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                if not sys.stdin.readline():
                    signal.pause()
        case "flood":
            for number in range(20_000):
                delta(f"{number}\n")
            completed()
        case _:
            delta("fine")
            completed()


STARTED = {
    "thread": {
        "id": THREAD, "sessionId": THREAD, "preview": "", "ephemeral": False, "modelProvider": "stockade", "cwd": "/",
        "createdAt": 1, "updatedAt": 1, "status": {"type": "idle"}, "cliVersion": "0.163.0", "source": "vscode",
        "turns": [],
    },
    "model": "fake", "modelProvider": "stockade", "cwd": "/", "approvalPolicy": "never", "approvalsReviewer": "user",
    "sandbox": {"type": "readOnly"},
}  # fmt: skip
RESULTS: dict[str, Any] = {
    "initialize": {"userAgent": "fake/0.163.0"},
    "command/exec": {"exitCode": 0, "stdout": "", "stderr": ""},
    "thread/start": STARTED,
    "turn/start": {"turn": turn(TURN, "inProgress")},
}


def respond(way: str, request: dict[str, Any]) -> None:
    response: dict[str, Any] = {"result": RESULTS.get(request["method"], {})}
    if request["method"] != "turn/start":
        send({"id": request["id"], **response})
        return
    if way == "refuses":
        send({"id": request["id"], "error": {"code": -32600, "message": "not today"}})
        return
    if way != "flood":
        send({"id": request["id"], **response})
    send({"method": "turn/started", "params": {"threadId": THREAD, "turn": turn(TURN, "inProgress")}})
    run(way, request["params"]["input"][0]["text"])
    if way == "flood":
        send({"id": request["id"], **response})
    if way == "dies-later":
        os._exit(0)


def main() -> None:
    way = sys.argv[1]
    if way == "dead-at-once":
        print("cannot start: no space left", file=sys.stderr, flush=True)
        os._exit(1)
    if way == "early-noise":
        for number in range(5000):
            print(f"[debug] {number}")
    if way == "never-ready":
        sys.stdin.readlines()
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            respond(way, request)


if __name__ == "__main__":
    main()
