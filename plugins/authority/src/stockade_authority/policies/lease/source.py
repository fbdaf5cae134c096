"""Where a lease is read from: a file, or a lease server. Blocking; made for a thread."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stockade_authority.policies.lease.errors import LeaseMissing, LeaseUnreachable

if TYPE_CHECKING:
    from stockade_authority.policies.config import LeaseOptions

MAX_SIZE = 8 * 1024
"""Bytes of a lease."""
TIME_LIMIT = 5.0
"""Seconds for one fetch; shorter than the time for a policy's answer."""


def read(options: LeaseOptions) -> str:
    """The text of the lease. Raises `LeaseMissing` and `LeaseUnreachable`; never shows the token."""
    return _file(options.file) if options.file else _fetch(options.url, options.token_file)


def _file(path: Path) -> str:
    try:
        with open(path.expanduser(), "rb") as file:
            return file.read(MAX_SIZE + 1).decode("ascii", "replace")
    except FileNotFoundError:
        hint = f"Put it there: stockade lease issue NAME --out {path}"
        raise LeaseMissing(f"there is no lease at {path}", hint=hint) from None
    except OSError as error:
        raise LeaseUnreachable(
            f"the lease {path} cannot be read: {error.strerror}", hint="Make it readable."
        ) from error


def _fetch(url: str, token_file: Path | None) -> str:
    request = urllib.request.Request(url, headers={"Accept": "application/jwt"})
    if token_file is not None:
        request.add_header("Authorization", f"Bearer {read_token(token_file)}")
    try:
        with _opener(url).open(request, timeout=TIME_LIMIT) as answer:
            data: bytes = answer.read(MAX_SIZE + 1)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                hint = "On its server: stockade lease issue NAME"
                raise LeaseMissing(f"{url} has no such lease", hint=hint) from None
            if error.code in (401, 403):
                hint = "Compare plugin.authority.lease.token_file with the --token-file of the server."
                raise LeaseUnreachable(f"{url} refuses us (status {error.code})", hint=hint) from None
            raise LeaseUnreachable(f"{url} answers with status {error.code}", hint=_HINT) from None
    except (OSError, ValueError) as error:
        # The reason, without what an HTTP library may put around it.
        reason = getattr(error, "reason", error)
        raise LeaseUnreachable(f"{url} does not answer: {type(reason).__name__}", hint=_HINT) from None
    return data.decode("ascii", "replace")


_HINT = "Look whether `stockade lease serve` runs there."


def read_token(path: Path) -> str:
    """The secret in a token file. Raises `LeaseUnreachable` without repeating anything of it."""
    try:
        token = path.expanduser().read_text().strip()
    except (OSError, ValueError) as error:
        raise LeaseUnreachable(
            f"the token file {path} cannot be read ({type(error).__name__})", hint="Make it readable, for you only."
        ) from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise LeaseUnreachable(f"the token file {path} does not hold one word", hint="Write the token, and no more.")
    return token


def _opener(url: str) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if is_local(url):
        handlers.append(urllib.request.ProxyHandler({}))  # a proxy's 127.0.0.1 is another machine's
    return urllib.request.build_opener(*handlers)


def is_local(url: str) -> bool:
    """Whether a URL names this machine."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes where the operator said, and not where a server says."""

    def redirect_request(self, *_: Any) -> None:
        return None
