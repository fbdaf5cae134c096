"""Every error Stockade raises, with a stable code and the next step.

Standard library only: the inside program raises these too. Match on the class or on ``code``,
never on the message (L85).
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers understand it: ``stockade --help`` does without typing
if TYPE_CHECKING:
    from typing import ClassVar


class StockadeError(Exception):
    """Root of all errors.

    ``code`` is stable and documented in ``docs/reference/errors.md``; ``hint`` says what to do next;
    ``exit_code`` is what the command line exits with.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(StockadeError):
    """The caller asked for something that cannot be asked for; nothing was started."""

    code = "usage"
    exit_code = 2


class NotConfigured(UsageError):
    """A part that the request needs has no configuration (for example no model key)."""

    code = "not_configured"


class SettingsError(UsageError):
    """A settings file or variable has a wrong value."""

    code = "settings"


# -- plugins ---------------------------------------------------------------------------------------


class PluginError(StockadeError):
    """A plugin cannot be used; ``plugin`` is its entry point's name."""

    code = "plugin"

    def __init__(self, message: str, *, plugin: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.plugin = plugin


class PluginNotFound(PluginError):
    """No installed and enabled distribution offers this name."""

    code = "plugin_not_found"


class PluginBroken(PluginError):
    """Importing or calling the plugin failed; the cause is chained."""

    code = "plugin_broken"


class PluginAmbiguous(PluginError):
    """Two distributions offer the same name; found before either is imported."""

    code = "plugin_ambiguous"


class PluginIncompatible(PluginError):
    """The plugin was written for another version of the contract."""

    code = "plugin_incompatible"


class BootError(StockadeError):
    """One or more hook modules could not be loaded; ``failures`` has them all."""

    code = "boot"

    def __init__(self, failures: list[PluginError]) -> None:
        lines = [f"{f.code}: {f.message}" + (f"\n    {f.hint}" if f.hint else "") for f in failures]
        super().__init__(
            f"{len(failures)} plugin(s) failed to load:\n  - " + "\n  - ".join(lines),
            hint="Uninstall them, or name them in STOCKADE_PLUGINS_DISABLED (setting plugins_disabled).",
        )
        self.failures = failures


# -- sandboxes -------------------------------------------------------------------------------------


class SandboxError(StockadeError):
    """Something about one sandbox; ``sandbox`` is its id."""

    code = "sandbox"

    def __init__(self, message: str, *, sandbox: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.sandbox = sandbox


class SandboxInUse(SandboxError):
    """Another live process owns the sandbox of this key."""

    code = "in_use"


class SandboxNotFound(SandboxError):
    """No sandbox of that key or id is registered."""

    code = "not_found"


class CreateFailed(SandboxError):
    """The driver could not make a sandbox; nothing of it is left."""

    code = "create_failed"


class DestroyFailed(SandboxError):
    """The driver could not confirm the end of a sandbox; it stays registered and is retried (L75)."""

    code = "destroy_failed"


class RevocationUnsupported(SandboxError):
    """The driver cannot revoke this route by itself (L39)."""

    code = "revocation_unsupported"


# -- files -----------------------------------------------------------------------------------------


class FileError(SandboxError):
    """A copy failed; nothing of it is left at its destination. The base of the reasons below."""

    code = "file"
    HINT: ClassVar[str] = "Check permissions and free space, and whether something changes the files meanwhile."

    def __init__(self, message: str, *, sandbox: str = "", hint: str = "") -> None:
        super().__init__(message, sandbox=sandbox, hint=hint or self.HINT)


class FileMissing(FileError):
    """What should be copied, or the folder to copy it into, does not exist."""

    code = "file_missing"
    HINT = "Check the path. In the sandbox it is relative to the workspace; the folder to copy into must exist."


class FileExists(FileError):
    """The copy would replace a file that exists, or a folder with a file."""

    code = "file_exists"
    HINT = "Ask for files to be replaced (`--force`, `overwrite=True`), or name another destination."


class FileLimit(FileError):
    """The copy has more bytes or members than the settings allow."""

    code = "file_limit"
    HINT = "Copy a part of it (`--exclude`), or raise the setting max_copy_bytes or max_copy_members."


class FileRefused(FileError):
    """A name, a link or a kind of file cannot be copied safely, or not be restored; nothing was written."""

    code = "file_refused"
    HINT = "Leave it out (`--exclude`, `exclude=`), rename it, or copy another part of the tree."


FILE_ERRORS: dict[str, type[FileError]] = {
    cls.code: cls for cls in (FileError, FileMissing, FileExists, FileLimit, FileRefused)
}


# -- the typed endings of a turn ------------------------------------------------------------------


class TurnFailed(SandboxError):
    """Base of the endings of a turn; ``code`` is one of `ENDINGS`."""

    code = "engine_failed"


class Denied(TurnFailed):
    """A policy refused, or did not answer."""

    code = "denied"


class OutOfMemory(TurnFailed):
    """The sandbox ran out of memory, with evidence from the kernel or the daemon."""

    code = "oom"


class TtlExpired(TurnFailed):
    """The sandbox reached its deadline."""

    code = "ttl"


class Revoked(TurnFailed):
    """A route or the warrant of the turn was revoked."""

    code = "revoked"


class Stalled(TurnFailed):
    """The turn reached its time limit."""

    code = "stalled"


class AuthFailed(TurnFailed):
    """The model's vendor refused the credential."""

    code = "auth"


class BudgetExceeded(TurnFailed):
    """A budget or the vendor's credit is used up."""

    code = "budget"


class ResumeFailed(TurnFailed):
    """The engine does not know the native session that was to be resumed. Never retried."""

    code = "resume_failed"


class SandboxLost(TurnFailed):
    """The sandbox or its channel went away."""

    code = "lost"


class Cancelled(TurnFailed):
    """The caller cancelled the turn."""

    code = "cancelled"


class EngineFailed(TurnFailed):
    """The engine ended without a result."""

    code = "engine_failed"


class ProtocolError(TurnFailed):
    """The peer sent something that the wire does not allow."""

    code = "protocol"


ENDINGS: dict[str, type[TurnFailed]] = {
    cls.code: cls
    for cls in (
        Denied,
        OutOfMemory,
        TtlExpired,
        Revoked,
        Stalled,
        AuthFailed,
        BudgetExceeded,
        ResumeFailed,
        SandboxLost,
        Cancelled,
        EngineFailed,
        ProtocolError,
    )
}
