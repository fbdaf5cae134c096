"""The hook module: what the kernel imports at boot."""

from __future__ import annotations

from collections.abc import Mapping

from stockade import Route, Settings, hookimpl


@hookimpl
def routes(settings: Settings) -> Mapping[str, Route]:
    """One route, with the settings of the plugin of this name. A wrong setting refuses the boot."""
    from stockade_acme.route import AcmeRoute

    return {"acme": AcmeRoute(settings.options("acme"))}
