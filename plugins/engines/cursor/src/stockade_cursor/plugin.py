"""The hook module: one route, ``cursor``."""

from __future__ import annotations

from collections.abc import Mapping

from stockade import Route, Settings, hookimpl


@hookimpl
def routes(settings: Settings) -> Mapping[str, Route]:
    """The route to Cursor's vendor. Its settings are the table ``[plugin.cursor]``."""
    from stockade_cursor.route import CursorRoute

    return {"cursor": CursorRoute.from_settings(settings)}
