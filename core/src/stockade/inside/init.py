"""The first process of a sandbox: starts the program, reaps orphans, and ends everything.

It reads nothing from the channel; it only watches it for a hang-up. So a kernel that is killed, even by
SIGKILL, takes the whole sandbox with it, whatever the program inside is doing.

In a PID namespace it is PID 1 and the end of it is the end of all. Without one it is a subreaper: whatever
daemonizes in here becomes its child.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable

from stockade.inside import proc

EXIT_HANGUP = 120
EXIT_DEADLINE = 121
EXIT_SILENCE = 122
EXIT_PROTOCOL = 123
"""Exit codes of the inside program: the kernel went away, the deadline, no pings, garbage on the channel."""

GRACE = 3.0
"""Seconds that the program has to end after SIGTERM."""
STRAY_GRACE = 0.2
"""Seconds that what the program left behind has to end after SIGTERM, before SIGKILL (F11)."""
STUBBORN = 5.0

_POLLRDHUP = getattr(select, "POLLRDHUP", 0x2000)
_PR_SET_CHILD_SUBREAPER = 36
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def supervise(program: Callable[[], int], *, watch: int, deadline: float) -> int:
    """Fork ``program`` and look after it; its exit code, or one of ours.

    ``watch`` is the channel's descriptor, ``deadline`` in seconds since the epoch. Returns when nothing
    else of the sandbox runs.
    """
    return _Init(watch, deadline).run(program)


class _Init:
    def __init__(self, watch: int, deadline: float) -> None:
        self._deadline = deadline
        self._namespaced = os.getpid() == 1
        if not self._namespaced:
            _become_subreaper()
        self._main = 0
        self._status: int | None = None
        self._wake, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._wake_write = write
        self._poll = select.poll()
        self._poll.register(watch, _POLLRDHUP)
        self._poll.register(self._wake, select.POLLIN)
        self._watch = watch

    def run(self, program: Callable[[], int]) -> int:
        handled = {signal.SIGCHLD, *_FORWARDED}
        # Blocked over the fork: a signal in between would be eaten by a handler that is not the child's.
        signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in handled:
            signal.signal(number, lambda *_: None)
        self._main = os.fork()
        if self._main == 0:
            _run_and_exit(program, handled, (self._wake, self._wake_write))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        code, orderly = self._watch_over()
        self._end_all(orderly)
        return code

    def _watch_over(self) -> tuple[int, bool]:
        """Wait for an end; its exit code, and whether strays may be asked before they are killed."""
        kill_at = float("inf")
        expired = False
        while True:
            until = min(60.0, kill_at - time.monotonic())
            if not expired:
                until = min(until, self._deadline - time.time())
            hung_up, signals = self._wait(max(0.0, until))
            self._reap()
            if self._status is not None:
                return (EXIT_DEADLINE if expired else _exit_code(self._status)), True
            if hung_up:
                return EXIT_HANGUP, False
            asked = bool(signals & set(_FORWARDED))
            if not expired and time.time() >= self._deadline:
                expired = asked = True
            if asked:
                os.kill(self._main, signal.SIGTERM)
                kill_at = min(kill_at, time.monotonic() + GRACE)
            if time.monotonic() >= kill_at:
                return (EXIT_DEADLINE if expired else 128 + signal.SIGTERM), False

    def _wait(self, seconds: float) -> tuple[bool, set[int]]:
        """Whether the channel hung up, and the signals that came, after at most ``seconds``."""
        hung_up, signals = False, set[int]()
        for descriptor, _ in self._poll.poll(seconds * 1000 + 1):
            if descriptor == self._watch:
                hung_up = True
            else:
                with contextlib.suppress(BlockingIOError):
                    signals.update(os.read(self._wake, 4096))
        return hung_up, signals

    def _reap(self) -> bool:
        """Collect what has ended (L89); False when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._status = status

    def _end_all(self, orderly: bool) -> None:
        # Orphans become our children, so no child left means nothing left.
        self._poll.unregister(self._watch)
        if orderly and self._signal_all(signal.SIGTERM):
            self._wait_for_none(STRAY_GRACE)
        limit = time.monotonic() + STUBBORN
        while self._signal_all(signal.SIGKILL) and time.monotonic() < limit:
            self._wait_for_none(0.05)

    def _signal_all(self, number: int) -> bool:
        """Signal every other process in here; False when there is none."""
        if not self._reap():
            return False
        if self._namespaced:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, number)
        else:
            table = proc.snapshot()
            for pid in proc.descendants([os.getpid()], table):
                proc.send(table[pid], number)
        return True

    def _wait_for_none(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while self._reap() and (left := limit - time.monotonic()) > 0:
            self._wait(left)


def _run_and_exit(program: Callable[[], int], handled: set[signal.Signals], inherited: tuple[int, ...]) -> None:
    """The forked child's life; never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        for descriptor in inherited:
            os.close(descriptor)
        code = program()
    except BaseException:
        # This frame is a copy of the parent's stack: nothing may be raised through it.
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        # No atexit handlers and no joining of threads that an engine's SDK left.
        os._exit(code)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _become_subreaper() -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become the reaper of the sandbox's orphans")
