"""The servers of the comparison: a fake vendor, our gateway, nginx and LiteLLM's proxy. Each is ended by its id."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from benchmarks.load import PACE, Target
from benchmarks.processes import clean_environment

CHUNKS = 60
"""Of one stream."""
START = 120.0
"""Seconds for a server to be there."""

_NGINX = """
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 10000000;
    upstream vendor {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 10000000; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://vendor;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""

_LITELLM = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "http://127.0.0.1:{upstream}/v1", api_key: none}}
"""


def direct(upstream: int) -> Target:
    """No proxy at all."""
    return Target(upstream)


@contextmanager
def upstream() -> Iterator[int]:
    """The fake vendor; its port."""
    port = _free_port()
    with _process([sys.executable, "-m", "benchmarks.proxies", str(port)], port):
        yield port


@contextmanager
def gateway(upstream: int, scratch: Path, warrant: str) -> Iterator[Target]:
    """``stockade gateway serve`` with the state root in ``scratch``."""
    port = _free_port()
    environment = clean_environment(
        STOCKADE_HOME=str(scratch / "home"), OPENAI_BASE_URL=f"http://127.0.0.1:{upstream}", OPENAI_API_KEY="none"
    )
    with _process([sys.executable, "-m", "stockade", "gateway", "serve", "--port", str(port)], port, environment):
        yield Target(port, warrant)


@contextmanager
def nginx(upstream: int, scratch: Path, *, install: bool) -> Iterator[Target | None]:
    """``proxy_pass`` on kept connections, one worker; ``None`` where there is no nginx."""
    if install and shutil.which("nginx") is None:
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "nginx-light"], check=True)
    program = shutil.which("nginx")
    if program is None:
        print("  nginx is not installed: run with --install, as root", flush=True)
        yield None
        return
    port, folder = _free_port(), scratch / "nginx"
    folder.mkdir()
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, upstream=upstream, port=port))
    with _process([program, "-c", str(folder / "nginx.conf"), "-g", "daemon off;"], port):
        yield Target(port)


@contextmanager
def litellm(upstream: int, scratch: Path, *, install: bool) -> Iterator[Target | None]:
    """LiteLLM's proxy as its documentation starts it; ``None`` where it is not installed."""
    program = shutil.which("litellm")
    if install and program is None:
        subprocess.run([sys.executable, "-m", "venv", str(scratch / "venv")], check=True)
        subprocess.run([str(scratch / "venv/bin/pip"), "install", "-q", "litellm[proxy]"], check=True)
        program = str(scratch / "venv/bin/litellm")
    if program is None:
        print("  LiteLLM is not installed: run with --install", flush=True)
        yield None
        return
    port = _free_port()
    (scratch / "litellm.yaml").write_text(_LITELLM.format(upstream=upstream))
    argv = [program, "--config", str(scratch / "litellm.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    key = f"sk-{secrets.token_hex(16)}"  # it starts with one only; so it checks a credential, as we do
    environment = clean_environment(LITELLM_MASTER_KEY=key, LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_LOG="ERROR")
    with _process(argv, port, environment):
        yield Target(port, key)


@contextmanager
def _process(argv: Sequence[str], port: int, environment: dict[str, str] | None = None) -> Iterator[None]:
    process = subprocess.Popen(
        argv,
        env=environment or clean_environment(),
        cwd=Path(__file__).parents[1],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                return
        except urllib.error.HTTPError:
            return  # it is there, and wants something else
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{process.args!r} did not come up")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- the fake vendor ----------------------------------------------------------------------------------------


def _answer() -> bytes:
    usage = {"prompt_tokens": 80, "completion_tokens": 4, "total_tokens": 84}
    choice = {"index": 0, "message": {"role": "assistant", "content": "It forwards."}, "finish_reason": "stop"}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    body = json.dumps({**head, "choices": [choice], "usage": usage}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


ANSWER = _answer()


class _Vendor(asyncio.Protocol):
    """Answers Chat Completions, with as few instructions as possible."""

    def __init__(self) -> None:
        self._data = b""
        self._streaming: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not found or len(body) < int(length or 0):
            return
        self._data = b""
        if b'"stream": true' in body or b'"stream":true' in body:
            self._streaming = asyncio.ensure_future(self._stream())
        else:
            self._transport.write(ANSWER)

    async def _stream(self) -> None:
        kind = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked"
        self._transport.write(b"HTTP/1.1 200 OK\r\n" + kind + b"\r\n\r\n")
        for _ in range(CHUNKS):
            await asyncio.sleep(PACE)
            choice = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
            chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
            self._chunk(json.dumps({"created": time.monotonic(), **chunk}).encode())
        self._chunk(b"[DONE]")
        self._transport.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        event = b"data: " + data + b"\n\n"
        self._transport.write(b"%x\r\n%b\r\n" % (len(event), event))


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Vendor, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
