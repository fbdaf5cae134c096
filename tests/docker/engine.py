"""A Docker engine for the tests: the one that DOCKER_HOST names, else one of their own, for root."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 30.0


class Engine:
    """A private ``dockerd``, with nothing of the machine's: folders, socket, no network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/s"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        folder = self.folder
        command = ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
        command += ["--pidfile", f"{folder}/pid", "-H", self.host, "--bridge=none", "--iptables=false"]
        command += ["--ip6tables=false", "--ip-masq=false"]
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + PATIENCE
        while not answers(self.host):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"dockerd did not start:\n{(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, and wait for that. Idempotent."""
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


@contextmanager
def private() -> Iterator[Engine]:
    """An engine of its own; afterwards nothing of it is left."""
    folder = Path(tempfile.mkdtemp(prefix="skd"))
    folder.chmod(0o711)  # an ordinary user of a test needs the socket
    engine = Engine(folder)
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()
        for line in Path("/proc/mounts").read_text().splitlines()[::-1]:
            target = line.split()[1]
            if target.startswith(f"{folder}/"):
                subprocess.run(["umount", "-l", target], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def answers(host: str) -> bool:
    """Whether an engine answers at an address."""
    kind, _, place = host.partition("://")
    try:
        if kind == "unix":
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect(place)
                connection.sendall(b"GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n")
                return b" 200 " in connection.recv(64)
        name, _, port = place.rstrip("/").partition(":")
        socket.create_connection((name, int(port)), timeout=5).close()
    except (OSError, ValueError):
        return False
    return True


def lack() -> str:
    """Why the tests have no engine; empty when they have one."""
    host = os.environ.get("DOCKER_HOST")
    if host:
        return "" if answers(host) else f"no engine answers at DOCKER_HOST={host}"
    if os.geteuid() != 0:
        return "only root can start an engine, and DOCKER_HOST names none"
    missing = [name for name in ("dockerd", "debootstrap") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)} (Debian: apt-get install docker.io debootstrap)" if missing else ""
