"""The fake backend as the model of the contract kit: it remembers conversations, as Cursor's backend does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from stockade.model.turn import Endpoint
from stockade.testing.rehearsal import Rehearsal
from tests.cursor import backend as proto
from tests.cursor.backend import Backend, Exec, serve

Item = Mapping[str, Any]


class RehearsingBackend(Backend):
    """Plays the items of a rehearsal, one a model call."""

    def __init__(self, script: Sequence[Item]) -> None:
        super().__init__()
        self.calls: list[object] = []
        self._items = self._play(script)
        self._memory: dict[str, list[str]] = {}

    def _play(self, script: Sequence[Item]) -> Iterator[Item]:
        yield from script
        last = next((item for item in reversed(script) if "text" in item), {"text": "done"})
        while True:
            yield last

    async def run(self, request: web.BaseRequest) -> web.StreamResponse:
        conversation = await self._conversation()
        response = web.StreamResponse(headers={"content-type": "application/connect+proto"})
        before: list[bytes] = []
        taken = False
        while True:
            item = next(self._items)
            if not taken:
                self.calls.append(list(conversation))
            taken = "delay" in item or "thinking" in item
            if "delay" in item:
                await asyncio.sleep(item["delay"])
                continue
            if "thinking" in item:
                before.append(proto.thinking(item["thinking"]))
                continue
            if "error" in item:
                return web.json_response({"message": "refused"}, status=item["error"]["status"])
            if not response.prepared:
                await response.prepare(request)
            for update in before:
                await self.send(response, update)
            before.clear()
            if "text" in item:
                conversation.append(item["text"])
                half = len(item["text"]) // 2
                for piece in (item["text"][:half], item["text"][half:]):
                    await self.send(response, proto.text(piece))
                return await self.end(response)
            for call in item.get("tools", [item]):
                conversation.append(await self._call(response, call))

    async def _conversation(self) -> list[str]:
        """The messages of the conversation that a new run belongs to, with the one that came."""
        run = await self.run_request()
        messages = self._memory.setdefault(proto.first(run, 5).decode(), [])
        messages.append(proto.first(run, 2, 1, 1, 1).decode())  # action, user_message_action, user_message, text
        return messages

    async def _call(self, response: web.StreamResponse, call: Item) -> str:
        """One call of a tool, with the updates that the backend sends about it; its output."""
        is_shell = "shell" in call
        subject: str = call["shell"] if is_shell else call["write"]["path"]
        step = proto.command(subject) if is_shell else proto.write(subject, call["write"]["content"])
        identity = f"call-{self.next_exec}"
        await self.send(response, proto.tool_call(2, identity, is_shell, proto.field(1, subject), b""))
        output, result = _result(await self.do(step, response), step, subject)
        await self.send(response, proto.tool_call(3, identity, is_shell, proto.field(1, subject), result))
        return output


def _result(said: list[bytes], step: Exec, subject: str) -> tuple[str, bytes]:
    """What came of it, and the message that the backend makes of that. AgentClientMessage 2: exec_client_message."""
    answers = [found for one in said if (found := proto.first(one, 2))]
    if step.number == proto.WRITE:
        (answer,) = (proto.first(one, step.number) for one in answers)
        if proto.first(answer, 1):
            return "written", proto.field(1, proto.field(1, subject) + proto.field(7, ""))
        refusal = proto.first(answer, 3, 4) or proto.first(answer, 6, 2) or proto.first(answer, 5, 2)
        return refusal.decode(), proto.field(6, proto.field(1, subject) + proto.field(2, refusal))
    streams = [proto.first(one, step.number) for one in answers]
    refusals = [refusal for one in streams if (refusal := proto.first(one, 5, 3) or proto.first(one, 6, 3))]
    if refusals:
        return refusals[0].decode(), proto.field(4, proto.field(1, subject) + proto.field(3, refusals[0]))
    output = b"".join(proto.first(one, stream, 1) for one in streams for stream in (1, 2))
    # ShellStreamExit 1: code, which is left out when it is 0.
    ended = next((found for one in streams if (found := proto.first(one, 3))), b"")
    code = ended[1] if ended.startswith(b"\x08") else 0
    told = proto.field(1, subject) + proto.field(3, code) + proto.field(5, output)
    return output.decode(), proto.field(2 if code else 1, told)


@asynccontextmanager
async def rehearse(script: Sequence[Item]) -> AsyncIterator[Rehearsal]:
    """Serves a script as Cursor's backend, without a route."""
    async with serve(RehearsingBackend(script)) as backend:
        yield Rehearsal({"cursor": Endpoint(backend.url, "placeholder")}, backend.calls)
