"""One call of the model, over the route. Standard library only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from stockade.errors import AuthFailed, EngineFailed
from stockade.model.turn import Endpoint

REFUSED = (401, 403)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answered: blocks of the Messages API, and the tokens of this call."""

    content: list[dict[str, Any]]
    input_tokens: int
    output_tokens: int


async def ask(endpoint: Endpoint, request: Mapping[str, Any]) -> Reply:
    """Send the conversation; the reply as a whole. Raises `AuthFailed` or `EngineFailed`."""
    try:
        status, body = await _post(endpoint, json.dumps(request).encode())
    except (OSError, ValueError, IndexError) as error:
        hint = "The route may be revoked, or its server down."
        raise EngineFailed(f"the model cannot be reached: {error}", hint=hint) from error
    if status != 200:
        failure = AuthFailed if status in REFUSED else EngineFailed
        text = body[:500].decode(errors="replace")
        raise failure(f"the model answered with status {status}: {text}", hint="See the settings of the route model.")
    try:
        reply = json.loads(body)
        return Reply(reply["content"], reply["usage"]["input_tokens"], reply["usage"]["output_tokens"])
    except (ValueError, KeyError, TypeError) as error:
        raise EngineFailed("the model's answer is none", hint="Does the route speak the Messages API?") from error


async def _post(endpoint: Endpoint, body: bytes) -> tuple[int, bytes]:
    """Status and body. In HTTP/1.0, where the answer is all that comes until the connection closes."""
    url = urlsplit(endpoint.url)
    head = (
        f"POST {url.path}/v1/messages HTTP/1.0",
        f"Host: {url.netloc}",
        # Worth nothing anywhere else: the vendor's key stays outside the sandbox.
        f"X-Api-Key: {endpoint.key}",
        "Anthropic-Version: 2023-06-01",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        await writer.drain()
        answer = await reader.read()
    finally:
        writer.close()
    if not answer:
        raise ConnectionError("the connection ended without an answer")
    first, _, content = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), content
