"""The table of ``stockade plugins list``: metadata only, so that a broken plugin cannot break it."""

from __future__ import annotations

from stockade.plugins.scan import EntryPoint, scan
from stockade.plugins.selection import Selection


def rows(selection: Selection) -> list[dict[str, str | bool]]:
    """Every installed plugin, enabled or not, by kind and name, ready for JSON.

    ``api`` is the range of kernel versions that its distribution asks for: the contract version is an
    attribute of the class, and reading that would import it. ``disabled_by`` is the setting that
    disables it, empty when it is enabled.
    """
    return [_row(entry, selection) for entry in scan()]


def _row(entry: EntryPoint, selection: Selection) -> dict[str, str | bool]:
    setting = selection.blocked_by(entry)
    return {
        "kind": entry.kind,
        "name": entry.name,
        "dist": entry.dist,
        "version": entry.version,
        "api": entry.requires or "-",
        "enabled": not setting,
        "disabled_by": setting,
        "value": entry.value,
    }
