"""A stand-in for Cursor's bridge: speaks Connect as JSON, and behaves in the way that it is told to.

The first argument names the way: it is baked into the launcher that `fake_bridge` in conftest.py writes. Requests are
appended as lines of JSON to ``bridge.log`` in the workspace.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAY, WORKSPACE = sys.argv[1], sys.argv[3]
TOKEN = "bearer-of-the-bridge"
LIFECYCLE = "RUN_LIFECYCLE_STATUS_"
IDS = {"agent_id": "agent-1", "run_id": "run-1"}

cancelled = threading.Event()
sends = 0


def assistant(text: str) -> dict[str, Any]:
    return {"type": "assistant", **IDS, "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}


def status(name: str, message: str = "") -> dict[str, Any]:
    return {"type": "status", **IDS, "status": name, "message": message}


def thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", **IDS, "text": text}


def call(identity: str, state: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", **IDS, "call_id": identity, "name": "shell", "status": state, **more}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Silent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = self.path.rpartition("/")[2]
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.unary({"code": "unauthenticated", "message": "Unauthorized"}, 401)
        request = json.loads(body[5:] if name == "Send" else body)
        with open(f"{WORKSPACE}/bridge.log", "a", encoding="utf-8") as log:
            log.write(json.dumps([name, request]) + "\n")
        if name == "Send":
            return self.send_run(request)
        return self.answer(name, request)

    def answer(self, name: str, request: dict[str, Any]) -> None:
        match name:
            case "ListModels":
                self.unary({"items": [] if WAY == "no-models" else [{"id": "fake-model"}, {"id": "other"}]})
            case "CreateAgent" if WAY == "refused":
                self.refuse("invalid_argument", detail("INVALID_MODEL", "sandboxing is not supported"), 400)
            case "CreateAgent":
                self.unary({"agentId": "agent-1", "model": request["options"]["model"]})
            case "ResumeAgent" if request["agentId"] != "agent-1":
                self.refuse("not_found", detail("AGENT_NOT_FOUND", "no agent"), 404)
            case "ResumeAgent":
                self.unary({"agentId": "agent-1", "model": request["options"]["model"]})
            case "ListRuns":
                states = {"run-0": "RUNNING", "run-00": "FINISHED"}
                runs = [{"runId": run, "agentId": "agent-1", "status": LIFECYCLE + states[run]} for run in states]
                self.unary({"items": runs})
            case "CancelRun":
                if WAY != "deaf":
                    cancelled.set()
                self.unary({})
            case _:
                self.unary({})

    def refuse(self, code: str, why: dict[str, Any], status: int) -> None:
        self.unary({"code": code, "message": "no", "details": [why]}, status)

    def unary(self, message: dict[str, Any], code: int = 200) -> None:
        data = json.dumps(message).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    # -- a run ---------------------------------------------------------------------------------------

    def send_run(self, request: dict[str, Any]) -> None:
        global sends
        sends += 1
        self.send_response(200)
        self.send_header("Content-Type", "application/connect+json")
        self.send_header("Connection", "close")
        self.end_headers()
        if (WAY == "busy" and sends == 1) or WAY == "always-busy":
            self.error("failed_precondition", detail("AGENT_BUSY", "agent is busy"))
        elif WAY == "busy-plainly" and sends == 1:
            self.error("internal", detail("INTERNAL_ERROR", "already has active run"))
        elif WAY == "rate":
            self.error("resource_exhausted", detail("USAGE_LIMIT_EXCEEDED", "the limit is reached"))
        else:
            self.say(status("RUNNING"))
            self.play(request)
        self.close_connection = True

    def frame(self, message: dict[str, Any], flags: int = 0) -> None:
        self.raw(json.dumps(message).encode(), flags)

    def raw(self, data: bytes, flags: int = 0) -> None:
        self.wfile.write(bytes([flags]) + len(data).to_bytes(4, "big") + data)
        self.wfile.flush()

    def say(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.frame({"sdkMessage": {"type": message["type"], "message": message}, "offset": "1"})

    def error(self, code: str, *details: dict[str, Any]) -> None:
        self.frame({"error": {"code": code, "message": "no", "details": list(details)}}, 2)

    def result(self, state: str = "FINISHED", *, end: bool = True, **more: Any) -> None:
        lifecycle = LIFECYCLE + state
        whole = {"runId": "run-1", "agentId": "agent-1", "status": lifecycle, **more}
        self.frame({"result": {"runId": "run-1", "agentId": "agent-1", "status": lifecycle, "result": whole}})
        if end:
            self.frame({"done": {"runId": "run-1", "agentId": "agent-1"}})
            self.frame({}, 2)

    def play(self, request: dict[str, Any]) -> None:
        match WAY:
            case "tools":
                self.say(
                    call("a", "running", args={"command": "first"}), call("b", "running", args={"command": "second"})
                )
                self.say(call("a", "running", args={"command": "first"}))
                self.say(call("b", "completed", args={"command": "second"}, result={"stdout": "of b"}))
                self.say(call("a", "error", args={"command": "first"}, result="of a"))
                self.say(call("c", "completed", args={}, result={"status": "error", "error": "of c"}))
                self.result()
            case "thinking":
                self.say(thinking("h"), thinking("m"), assistant("So "), assistant("it is."))
                self.result(result="So it is.")
            case "snapshots":
                self.say(thinking("First"), thinking("First I"), thinking("First I look."))
                self.say(assistant("Hel"), assistant("Hello"), assistant("Hello, you"), assistant("Hello, you"))
                self.say(call("a", "running"), call("a", "completed"), assistant("Bye"), assistant("Bye."))
                self.result(result="Bye.")
            case "two-snapshots":
                self.say(assistant("Hel"), assistant("Hello"))
                self.result(result="Hello")
            case "counting":
                self.say(assistant("1"), assistant("10"), assistant("100"[1:]))
                self.result(result="11000")
            case "silent-text":
                self.result(result="only in the result")
            case "worker-stays":
                subprocess.Popen(["tail", "-f", "/dev/null"])
                self.say(assistant("done"))
                self.result(result="done", end=False)
                threading.Event().wait()
            case "cancel" | "deaf":
                self.say(assistant("working"))
                cancelled.wait()
                self.result("CANCELLED")
            case "usage":
                tokens = {"inputTokens": 5, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 1}
                self.say(*[{"type": "usage", **IDS, "usage": tokens}] * 2)
                self.result(usage={"inputTokens": "99"})
            case "dies":
                self.say(assistant("half"))
                print("out of luck", file=sys.stderr, flush=True)
                os._exit(3)
            case "no-result":
                self.say(assistant("half"))
                self.frame({}, 2)
            case "broken-off":
                self.say(assistant("half"))
            case "garbage":
                self.raw(b"\x00\xff no JSON")
            case "unknown":
                self.frame({})
                self.say({"type": "weather", "is": "fine"}, {"type": "request", **IDS, "request_id": "r"})
                self.say({"type": "task", **IDS, "text": "half of it"}, assistant("fine"))
                self.result()
            case "run-fails":
                self.say(status("ERROR", "the reason"))
                self.result("ERROR", errorCode="unauthenticated")
            case "run-fails-in-text":
                self.result("ERROR", errorMessage="[unauthenticated] HTTP 401")
            case "run-expires":
                self.result("EXPIRED")
            case "long":
                self.say(assistant("é" * 3_000_000))
                self.say(call("t", "completed", args={"command": "x" * 2_000_000}, result="y" * 10_485_760))
                self.result()
            case "environment":
                self.say(assistant(json.dumps({"environment": dict(os.environ), "argv": sys.argv, "cwd": os.getcwd()})))
                self.result()
            case "stderr":
                for number in range(2000):
                    print(f"line {number} " + "e" * 100, file=sys.stderr)
                self.say(assistant("fine"))
                self.result()
            case _:
                self.say(assistant("fine"))
                self.result(result="fine")


def detail(code: str, message: str) -> dict[str, Any]:
    return {"type": "sdk.v1.SdkErrorDetails", "debug": {"sdkErrorCode": f"SDK_ERROR_CODE_{code}", "message": message}}


def main() -> None:
    if WAY == "dead-at-once":
        print("cannot start: no space left", file=sys.stderr, flush=True)
        os._exit(1)
    if WAY == "never-ready":
        print("still booting", file=sys.stderr, flush=True)
        signal.pause()
    print("some noise\non standard output", flush=True)
    print("(node) a warning", file=sys.stderr, flush=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    greeting = {"schemaVersion": 1, "transport": "tcp", "protocol": "connect", "host": "127.0.0.1"}
    greeting |= {"port": server.server_port, "authToken": TOKEN, "pid": os.getpid()}
    line = {"no-json": "{oops", "no-object": "[1]", "other-schema": '{"schemaVersion": 2}'}.get(
        WAY, json.dumps(greeting)
    )
    print(f"cursor-sdk-bridge ready {line}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
