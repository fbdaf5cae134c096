"""A model that follows a script, in the Messages API on 127.0.0.1: what the kit asks for as `rehearse`."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from stockade.model.turn import Endpoint
from stockade.testing.rehearsal import Rehearsal

Item = Mapping[str, Any]


@contextlib.asynccontextmanager
async def rehearse(script: Sequence[Item]) -> AsyncIterator[Rehearsal]:
    """Serves the script until the context is left; see `stockade.testing.rehearsal.Rehearse`."""
    calls: list[object] = []
    items = _endless(script)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length:")[2].split()[0])
            calls.append(json.loads(await reader.readexactly(size)))
            status, body = 200, dict[str, Any]()
            for item in items:
                if "delay" in item:
                    await asyncio.sleep(item["delay"])
                elif "thinking" not in item:
                    status, body = _reply(item, len(calls))
                    break
            writer.write(f"HTTP/1.0 {status} Scripted\r\n\r\n{json.dumps(body)}".encode())
            await writer.drain()

    tasks: set[asyncio.Task[None]] = set()
    server = await asyncio.start_server(
        lambda reader, writer: tasks.add(asyncio.create_task(answer(reader, writer))), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    try:
        yield Rehearsal({"model": Endpoint(f"http://127.0.0.1:{port}", "a-key")}, calls)
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _endless(script: Sequence[Item]) -> Iterator[Item]:
    yield from script
    while True:
        yield {"text": "".join(item["text"] for item in script[-1:] if "text" in item) or "done"}


def _reply(item: Item, number: int) -> tuple[int, dict[str, Any]]:
    """Status and body for one item."""
    if "error" in item:
        return item["error"]["status"], {"error": {"type": "scripted", "message": "as the script says"}}
    if "text" in item:
        content = [{"type": "text", "text": item["text"]}]
    else:
        content = [
            {"type": "tool_use", "id": f"call-{number}-{place}", **_tool(call)}
            for place, call in enumerate(item.get("tools", [item]))
        ]
    return 200, {"content": content, "usage": {"input_tokens": 10, "output_tokens": len(json.dumps(content))}}


def _tool(call: Item) -> Item:
    if "shell" in call:
        return {"name": "Bash", "input": {"command": call["shell"]}}
    return {"name": "Write", "input": call["write"]}
