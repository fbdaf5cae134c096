"""From the command line to the running program: descriptors, directories, then init.

Everything here happens once, before any engine code is loaded. A failure ends the process with a code
that is not 0 and the reason on stderr (L16, L17).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from stockade.inside.init import supervise
from stockade.inside.options import DEFAULT_WORKSPACE, USAGE, BadOptions, Options, parse

EXIT_USAGE = 2
EXIT_BOOT = 3


def main(argv: Sequence[str]) -> int:
    """Run the inside program; its exit code. Returns when nothing of the sandbox runs."""
    if "--help" in argv or "-h" in argv:
        print(USAGE, end="")
        return 0
    try:
        options = parse(argv)
    except BadOptions as error:
        print(f"stockade sandbox: {error}\n\n{USAGE}", end="", file=sys.stderr)
        return EXIT_USAGE
    # PID 1 has no default actions: without a handler it could not be ended while it waits for a kernel (F11).
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        descriptors = take_descriptors(options)
        prepare(options)

        def program() -> int:
            from stockade.inside.program import run

            return run(options, descriptors)

        return supervise(program, watch=descriptors[0], deadline=options.deadline)
    except OSError as error:
        print(f"stockade sandbox: cannot start: {error}", file=sys.stderr)
        return EXIT_BOOT


def take_descriptors(options: Options) -> tuple[int, ...]:
    """The channel's descriptors: one socket, or a pair to read from and write to.

    They are private: nothing inherits them, and 0 and 1 become ``/dev/null`` and stderr, so that no
    stray ``print`` reaches the kernel (L77).
    """
    channel: tuple[int, ...]
    if options.stdio:
        channel = (_private(0), _private(1))
    elif options.fd is not None:
        channel = (_private(options.fd),)
        if options.fd > 2:
            os.close(options.fd)
    else:
        channel = (accept_one(Path(options.socket), options.lease),)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return channel


def _private(descriptor: int) -> int:
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


def accept_one(path: Path, timeout: float) -> int:
    """Listen at ``path`` until the kernel connects, at most ``timeout`` seconds; its connection.

    The directory is closed to others before the socket exists (L83), and a socket that a dead process
    left is removed (L19). A live one is an error.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    _remove_stale(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        try:
            listener.listen(1)
            listener.settimeout(timeout)
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                raise TimeoutError(f"no kernel connected to {path} within {timeout:g} s") from None
        finally:
            path.unlink(missing_ok=True)
    return connection.detach()


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, contextlib.suppress(ConnectionRefusedError):
        probe.connect(str(path))
        raise FileExistsError(f"{path} belongs to a running sandbox")
    path.unlink()


def prepare(options: Options) -> None:
    """Directories, environment and working directory.

    HOME and every other place to write move under the state dir, whatever the image says (L22, L23). This
    program knows no other workspace than its own (L24) and works in it (L25); one that was named must exist.
    """
    state = options.state_dir
    if options.workspace == state / DEFAULT_WORKSPACE:
        options.workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    places = {
        "HOME": state / "home",
        "TMPDIR": state / "tmp",
        "XDG_CONFIG_HOME": state / "home" / ".config",
        "XDG_CACHE_HOME": state / "home" / ".cache",
        "XDG_DATA_HOME": state / "home" / ".local" / "share",
        "XDG_STATE_HOME": state / "home" / ".local" / "state",
    }
    for name, place in places.items():
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ[name] = str(place)
    os.environ["STOCKADE_SANDBOX"] = options.id
    os.environ["STOCKADE_TIER"] = str(options.tier)
    os.chdir(options.workspace)
    os.environ["PWD"] = str(options.workspace)
