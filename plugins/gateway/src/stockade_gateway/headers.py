"""Which headers go through, and the credential that goes with them."""

from __future__ import annotations

from functools import lru_cache

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from stockade_gateway.config import Upstream

_REQUEST = frozenset({"accept", "content-type", "user-agent", "openai-beta", "idempotency-key"})
_ANSWER = frozenset(
    {
        "content-type",
        "content-encoding",
        "retry-after",
        "retry-after-ms",
        "request-id",
        "x-request-id",
        "x-should-retry",
    }
)
_ANSWER_PREFIXES = ("anthropic-", "x-ratelimit-", "openai-")
_ACCOUNT = ("organization", "project")
"""Words in the names of headers that tell whose account it is: no business of a sandbox."""


@lru_cache(maxsize=1024)  # an agent sends the same few names with every call
def _goes_in(name: str) -> bool:
    lower = name.lower()
    return lower in _REQUEST or lower.startswith("anthropic-")


@lru_cache(maxsize=1024)
def _comes_out(name: str) -> bool:
    lower = name.lower()
    return (lower in _ANSWER or lower.startswith(_ANSWER_PREFIXES)) and not any(word in lower for word in _ACCOUNT)


def of_request(request: web.BaseRequest, dialect: str, upstream: Upstream) -> CIMultiDict[str]:
    """What the upstream gets: the caller's, without its credential, and the host's credential."""
    headers = CIMultiDict((name, value) for name, value in request.headers.items() if _goes_in(name))
    headers["Accept-Encoding"] = "identity"  # compressed event streams come late
    if upstream.key is not None:
        secret = upstream.key.get_secret_value()
        if upstream.bearer or dialect == "openai":
            headers["Authorization"] = f"Bearer {secret}"
        else:
            headers["x-api-key"] = secret
    return headers


def of_answer(answer: aiohttp.ClientResponse, upstream: Upstream) -> CIMultiDict[str]:
    """What the caller gets: nothing about the host's account, and never the credential."""
    secret = upstream.key.get_secret_value() if upstream.key is not None else None
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in answer.headers.items():
        if _comes_out(name) and not (secret and secret in value):
            kept.add(name, value)
    return kept
