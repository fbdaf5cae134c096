"""The hook module: one route, ``model``."""

from __future__ import annotations

from collections.abc import Mapping

from stockade import Route, Settings, hookimpl


@hookimpl
def routes(settings: Settings) -> Mapping[str, Route]:
    """The model route. Its settings are the table ``[plugin.gateway]``."""
    from stockade_gateway.route import ModelRoute

    return {"model": ModelRoute.from_settings(settings)}
