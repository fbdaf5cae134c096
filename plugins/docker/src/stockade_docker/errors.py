"""What goes wrong with a Docker engine, as errors with codes of their own."""

from __future__ import annotations

from stockade.errors import CreateFailed


class EngineUnreachable(CreateFailed):
    """No Docker engine answers at the address."""

    code = "docker_unreachable"


class ImageMissing(CreateFailed):
    """The engine has no such image, and nothing is pulled unasked."""

    code = "image_missing"


class ImageRefused(CreateFailed):
    """The settings do not allow this image."""

    code = "image_refused"


class IsolationMismatch(CreateFailed):
    """The container is not what was asked for; it was destroyed before anything ran in it."""

    code = "isolation_mismatch"
