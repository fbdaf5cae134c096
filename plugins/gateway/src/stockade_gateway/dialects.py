"""The two dialects: which paths are the model's, and how each says that something went wrong."""

from __future__ import annotations

import json

from aiohttp import web

PATHS = {
    ("POST", "/v1/messages"): "anthropic",
    ("POST", "/v1/messages/count_tokens"): "anthropic",
    ("POST", "/v1/responses"): "openai",
    ("POST", "/v1/chat/completions"): "openai",
}
"""Method and path: dialect. ``/v1/models`` belongs to both and goes by its headers. All else is refused."""

_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI = {
    401: "invalid_api_key",
    402: "insufficient_quota",
    404: "not_found",
    413: "request_too_large",
    429: "rate_limit_exceeded",
}


def path_of(request: web.BaseRequest) -> str:
    """The path as the caller wrote it. Nothing is decoded: what needs decoding is not one of `PATHS`."""
    return request.raw_path.partition("?")[0]


def dialect_of(request: web.BaseRequest) -> str | None:
    """The dialect of a model's path, else ``None``."""
    path = path_of(request)
    if path == "/v1/models" and request.method == "GET":
        return "anthropic" if "anthropic-version" in request.headers or "x-api-key" in request.headers else "openai"
    return PATHS.get((request.method, path))


def dialect_for_errors(request: web.BaseRequest) -> str:
    """The dialect to refuse a caller in, also when the path is none of the model's."""
    openai = path_of(request).startswith(("/v1/responses", "/v1/chat/"))
    return dialect_of(request) or ("openai" if openai else "anthropic")


def error_body(dialect: str, status: int, message: str) -> dict[str, object]:
    """The JSON of an error as the dialect's own clients expect it."""
    if dialect == "openai":
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "code": _OPENAI.get(status), "param": None}}
    return {"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": message}}


def error(dialect: str, status: int, message: str) -> web.Response:
    """A whole error response."""
    body = json.dumps(error_body(dialect, status, message))
    return web.Response(status=status, body=body, content_type="application/json")
