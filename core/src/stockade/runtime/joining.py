"""A turn that meets a sandbox somebody else's request made: it must fit, and be admitted in its own right."""

from __future__ import annotations

import dataclasses

from stockade.errors import UsageError
from stockade.model.authority import SandboxRequest
from stockade.model.turn import FileAccess
from stockade.runtime import admitting
from stockade.runtime.creation import Workshop
from stockade.runtime.entry import Entry


async def join(shop: Workshop, entry: Entry, request: SandboxRequest) -> FileAccess:
    """Check a turn's request against a live sandbox; returns the file access the turn gets.

    What was admitted for one engine, user or file access is not admitted for another: policies are
    asked again for each new combination. Raises `Denied`, or `UsageError` where the sandbox differs.
    """
    made = entry.request
    for what in ("driver", "workspace"):
        if getattr(made, what) != getattr(request, what):
            raise UsageError(
                f"sandbox {entry.key!r} was made with {what} {getattr(made, what)}, not {getattr(request, what)}",
                hint="Use another --sandbox or --session, or destroy this one first.",
            )
    for what in ("env_pass", "add_dirs"):
        missing = [str(v) for v in getattr(request, what) if v not in getattr(made, what)]
        if missing:
            raise UsageError(
                f"sandbox {entry.key!r} was made without {what.replace('_', ' ')} {', '.join(missing)}",
                hint="Use another --sandbox or --session, or destroy this one first.",
            )
    wish = (request.engine, request.user, request.file_access)
    if wish not in entry.admitted:
        narrowed = admitting.constrain(shop.boot.hooks, dataclasses.replace(request, sandbox=entry.id))
        await admitting.admit(shop, narrowed)
        if entry.sandbox is not None:
            await admitting.confirm(shop, narrowed, entry.sandbox.isolation)
        entry.admitted[wish] = narrowed.file_access
    return entry.admitted[wish]
