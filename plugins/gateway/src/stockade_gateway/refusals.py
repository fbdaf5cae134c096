"""A call that is not made, and why: for the caller in its dialect, for the kernel as a typed ending."""

from __future__ import annotations

import json

from aiohttp import web

from stockade.errors import TurnFailed
from stockade_gateway import dialects


class Refused(Exception):
    """Raised instead of making a call. ``ending`` is how the turn ends when it fails after this."""

    def __init__(self, status: int, ending: TurnFailed) -> None:
        super().__init__(ending.message)
        self.status = status
        self.ending = ending

    def answer(self, dialect: str) -> web.Response:
        """What the caller gets. SDKs and agents are told not to try again where that is of no use."""
        body = dialects.error_body(dialect, self.status, self.ending.message)
        error = body["error"]
        if self.status == 429 and dialect != "anthropic" and isinstance(error, dict):
            # OpenAI's own word for it; the one for a rate limit would be tried again.
            error["type"] = error["code"] = "insufficient_quota"
        response = web.Response(status=self.status, body=json.dumps(body), content_type="application/json")
        if self.status < 500:
            response.headers["x-should-retry"] = "false"
        return response
