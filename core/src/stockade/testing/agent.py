"""An agent that misbehaves: one executable, standard library only, chosen by a word in the prompt.

``python -m stockade.testing.agent MARK`` reads one line of JSON, ``{"prompt": "…"}``, from standard input and
answers in lines of JSON: ``{"type": "text", "text": "…"}``, then ``{"type": "result", "session": "…", "tokens": 7}``.
The prompt's first word that is a key of `FAULTS` says what goes wrong; without one nothing does.

``python -m stockade.testing.agent MARK KIND…`` starts a process of each kind in `KINDS`, says ``up`` and stays.

``MARK`` does nothing. It is on the command line of everything that this starts, so that it can be found again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable

FLOOD = 1_000_000
"""Events of ``flood``."""
SILENCE = 1.5
"""Seconds of ``silent``."""
WORDS = "café naïve 日本 😀"
"""Text of which every character crosses a boundary somewhere."""


def main(argv: list[str]) -> int:
    """Play the part; the exit code."""
    if len(argv) > 1:
        return plant(argv[0], argv[1:])
    prompt = json.loads(sys.stdin.buffer.readline())["prompt"]
    fault = next((FAULTS[word] for word in prompt.split() if word in FAULTS), None)
    if fault is not None:
        return fault(argv[0])
    text("fine")
    return result()


# -- what an agent says --------------------------------------------------------------------------------


def raw(data: bytes) -> None:
    """Bytes on standard output, at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def line(message: dict[str, object]) -> bytes:
    """A message as it should be: one line of UTF-8."""
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def text(words: str) -> None:
    """A piece of the answer."""
    raw(line({"type": "text", "text": words}))


def result() -> int:
    """The end of a good turn."""
    raw(line({"type": "result", "session": "native-1", "tokens": 7}))
    return 0


def of_size(size: int) -> bytes:
    """A text event whose line has ``size`` bytes, without the newline."""
    empty = len(line({"type": "text", "text": ""})) - 1
    return line({"type": "text", "text": "x" * (size - empty)})


# -- what goes wrong -----------------------------------------------------------------------------------


def long_line(mark: str) -> int:
    """A line of 64 KiB and one byte, where many readers have their limit (F18)."""
    raw(of_size(64 * 1024 + 1))
    return result()


def huge_line(mark: str) -> int:
    """A line of 10 MiB, then a short one (F18)."""
    raw(of_size(10 * 1024 * 1024))
    text("after")
    return result()


def split_utf8(mark: str) -> int:
    """One byte a write, so that every character is torn (F20)."""
    for byte in line({"type": "text", "text": WORDS}):
        raw(bytes([byte]))
        time.sleep(0.001)
    return result()


def line_separator(mark: str) -> int:
    """Characters within a line that some readers take for the end of one."""
    text("one\u2028two\u2029three\u0085four\x0bfive\x0csix")
    return result()


def invalid_utf8(mark: str) -> int:
    """Bytes that are no text, alone and within a message."""
    raw(b"\xff\xfe\x80\n")
    raw(b'{"type": "text", "text": "torn \xe2\x28"}\n')
    text("after")
    return result()


def noise(mark: str) -> int:
    """Escape sequences, logs, blank lines and JSON that is no message (F22); more on stderr than a pipe holds (F25)."""
    raw(b"\x1b[?2004h\x1b[31mWARN\x1b[0m not JSON\n\n\r\n[1, 2]\nnull\n{}\n{broken\n")
    os.write(2, b"\x1b[2K log noise\n" * 20_000)
    text("after")
    return result()


def ignore_sigterm(mark: str) -> int:
    """Takes no hint (F7)."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    text("busy")
    return stay()


def hold_stdout(mark: str) -> int:
    """Ends, but a grandchild keeps its output open (F6)."""
    text("before")
    start("holds-stdout", mark)
    return 7


def daemons(mark: str) -> int:
    """Leaves what is in no process group and no session of its own (F5)."""
    start("own-session", mark)
    start("double-fork", mark)
    return result()


def no_result(mark: str) -> int:
    """Exit code 0 and nothing said (F40)."""
    return 0


def die_early(mark: str) -> int:
    """Dies after five milliseconds, with the reason on stderr (F8)."""
    os.write(2, b"cannot reach the moon\n")
    time.sleep(0.005)
    return 9


def worker_stays(mark: str) -> int:
    """A result, and then no end (F12)."""
    start("plain", mark)
    result()
    return stay()


def silent(mark: str) -> int:
    """Busy without a word (F13)."""
    time.sleep(SILENCE)
    text("done")
    return result()


def flood(mark: str) -> int:
    """A million events, as fast as the pipe takes them (F26)."""
    for start_at in range(0, FLOOD, 10_000):
        raw(b"".join(b'{"type": "text", "text": "%d\\n"}\n' % n for n in range(start_at, start_at + 10_000)))
    return result()


FAULTS: dict[str, Callable[[str], int]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        long_line,
        huge_line,
        split_utf8,
        line_separator,
        invalid_utf8,
        noise,
        ignore_sigterm,
        hold_stdout,
        daemons,
        no_result,
        die_early,
        worker_stays,
        silent,
        flood,
    )
}

# -- processes that do not want to end -----------------------------------------------------------------

KINDS = ("plain", "own-session", "double-fork", "no-environment", "holds-stdout")


def plant(mark: str, kinds: list[str]) -> int:
    """Start the kinds, say so, and stay; all ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for kind in kinds:
        start(kind, mark)
    raw(b"up\n")
    return stay()


def start(kind: str, mark: str) -> None:
    """One process that stays, of this kind. Returns when it is what it should be."""
    ready, say = os.pipe()
    if os.fork() == 0:
        os.close(ready)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        become(kind, mark, say)
    os.close(say)
    os.read(ready, 1)
    os.close(ready)


def become(kind: str, mark: str, say: int) -> None:
    """Turn into the kind; never returns."""
    if kind != "plain" and kind != "holds-stdout":
        os.setsid()
    if kind == "double-fork" and os.fork():
        os._exit(0)
    if kind != "holds-stdout":
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
    with open("/proc/self/comm", "w") as comm:
        comm.write(kind)
    if kind == "no-environment":
        # Only a new program has an environment of its own. The pipe closes when it runs.
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", _STAY, mark], {})
    os.write(say, b"x")
    os.close(say)
    os._exit(stay())


_STAY = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("/proc/self/comm", "w") as comm:
    comm.write("no-environment")
while True:
    signal.pause()
"""


def stay() -> int:
    """Until SIGKILL, or a SIGTERM that is not ignored."""
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
