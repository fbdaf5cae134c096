"""The list of models, where several upstreams serve one dialect."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import aiohttp
from aiohttp import web

from stockade_gateway import dialects
from stockade_gateway.config import Routing, Upstream
from stockade_gateway.forward import Forwarder

log = logging.getLogger("stockade.gateway")

MAX_LIST = 4 * 1024 * 1024
"""Bytes of one upstream's list."""


async def merged(forwarder: Forwarder, request: web.BaseRequest, dialect: str, routing: Routing) -> web.Response:
    """Each upstream's models that a call would be sent to it for. One that does not answer is left out.

    In one page, whatever the caller's paging asks for.
    """
    found = routing.all(dialect)
    lists = await asyncio.gather(*(_of(forwarder, request, dialect, upstream) for upstream in found))
    if all(models is None for models in lists):
        return dialects.error(dialect, 502, "no upstream gave its list of models")
    data: dict[str, Any] = {}
    for upstream, models in zip(found, lists, strict=True):
        for model in models or ():
            if isinstance(model, dict) and routing.of(dialect, str(model.get("id"))) is upstream:
                data.setdefault(str(model["id"]), model)
    shown: dict[str, Any] = {"data": list(data.values())}
    if dialect == "anthropic":
        names = list(data)
        shown |= {"has_more": False, "first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    else:
        shown["object"] = "list"
    return web.json_response(shown)


async def _of(
    forwarder: Forwarder, request: web.BaseRequest, dialect: str, upstream: Upstream
) -> Sequence[object] | None:
    try:
        answer = await forwarder.ask(request, dialect, b"", upstream)
        try:
            data = b""
            while len(data) <= MAX_LIST and (chunk := await answer.content.readany()):
                data += chunk
        finally:
            answer.close()
        models = json.loads(data)["data"] if answer.status == 200 and len(data) <= MAX_LIST else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        log.warning("an upstream for %s did not list its models: %s", dialect, type(error).__name__)
        return None
    return models if isinstance(models, list) else None
