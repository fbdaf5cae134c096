"""The two dialects: which paths are the model's, and how each says that something went wrong."""

from __future__ import annotations

import json

from aiohttp import web

PATHS = {
    ("POST", "/v1/messages"): "anthropic",
    ("POST", "/v1/messages/count_tokens"): "anthropic",
    ("POST", "/v1/responses"): "openai",
}
"""Method and path: dialect. ``/v1/models`` belongs to both and goes by its headers. All else is refused."""

_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_OPENAI = {401: "invalid_api_key", 404: "not_found", 413: "request_too_large", 429: "rate_limit_exceeded"}


def dialect_of(request: web.BaseRequest) -> str | None:
    """The dialect of a model's path, else ``None``."""
    if request.path == "/v1/models" and request.method == "GET":
        return "anthropic" if "anthropic-version" in request.headers or "x-api-key" in request.headers else "openai"
    return PATHS.get((request.method, request.path))


def error_body(dialect: str, status: int, message: str) -> dict[str, object]:
    """The JSON of an error as the dialect's own clients expect it."""
    if dialect == "openai":
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "code": _OPENAI.get(status), "param": None}}
    return {"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": message}}


def error(dialect: str, status: int, message: str) -> web.Response:
    """A whole error response."""
    return web.Response(
        status=status, body=json.dumps(error_body(dialect, status, message)), content_type="application/json"
    )
