"""Ways out of a sandbox, tried as the agent. Each probe is also run where it works, which shows that it is one."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.testing.driver import processes
from stockade.testing.driver.box import Box
from tests.docker.conftest import Make

pytestmark = [pytest.mark.needs("docker"), pytest.mark.skipif(os.geteuid() != 0, reason="the controls run as root")]

PROBES = {
    "a raw socket": "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
    "a packet socket": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "a mount": """
import ctypes, os, tempfile
libc = ctypes.CDLL(None, use_errno=True)
place = tempfile.mkdtemp(dir='/tmp')
assert libc.mount(b'none', place.encode(), b'tmpfs', 0, None) == 0, os.strerror(ctypes.get_errno())
libc.umount(place.encode()); os.rmdir(place)
""",
    "another root": "import os; os.chroot('/tmp')",
    "to become root": "import os; os.setuid(0); assert os.geteuid() == 0",
    "a user namespace": """
import ctypes, os
assert ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0
""",
    "a device node": """
import os, stat
os.mknod('/tmp/stockade-probe', stat.S_IFBLK | 0o600, os.makedev(254, 0)); os.unlink('/tmp/stockade-probe')
""",
    "the kernel's settings": "open('/proc/sys/kernel/hostname', 'r+').close()",
    "the kernel's memory map": "assert open('/proc/kcore', 'rb').read(16)",
    "a key of the kernel's keyring": """
import ctypes
assert ctypes.CDLL(None, use_errno=True).syscall(248, b'user', b'stockade-probe', b'x', 1, -3) > 0
""",
    "a setuid program": """
import os, shutil, subprocess
path = '/tmp/stockade-id'
shutil.copy('/usr/bin/id', path); os.chmod(path, 0o4755)
try:
    said = subprocess.run([path, '-u'], capture_output=True, text=True).stdout.strip()
finally:
    os.unlink(path)
assert said == '0'
""",
    "to write where programs are": """
import os
path = '/usr/stockade-probe'
os.close(os.open(path, os.O_CREAT | os.O_WRONLY)); os.unlink(path)
""",
}


async def attempt(box: Box, script: str) -> bool:
    """Whether a script works in the sandbox."""
    done = await box.run("python3", "-I", "-c", script)
    return bool(done.result["exit_code"] == 0)


def control(script: str) -> bool:
    """Whether it works on this machine, for root."""
    return subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, timeout=30).returncode == 0


@pytest.mark.parametrize("name", PROBES)
async def test_the_agent_does_not_get(make: Make, name: str) -> None:
    box = await make()
    if not control(PROBES[name]):
        pytest.skip("not possible on this machine either")
    assert not await attempt(box, PROBES[name])
    assert await box.sh("echo alive") == "alive"


async def test_nothing_of_the_host_is_there(make: Make, host: str) -> None:
    box, other = await make(), await make()
    (other.spec.state_dir / "secret").write_text("of another sandbox")
    paths = [str(other.spec.state_dir / "secret"), "/var/run/docker.sock", host.removeprefix("unix://")]
    paths += [str(Path(__file__)), str(box.spec.run_dir / "log"), str(other.spec.workspace)]
    for path in paths:
        assert not await attempt(box, f"import os; os.stat({path!r})"), path
    assert control(f"import os; os.stat({paths[0]!r}); os.stat({paths[3]!r})")
    seen = await box.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert box.spec.id in seen and other.spec.id not in seen


async def test_no_process_of_the_host_can_be_traced(make: Make) -> None:
    box = await make()
    with processes.bystander(box.mark()) as process:
        trace = f"""
import ctypes, os
assert ctypes.CDLL(None, use_errno=True).ptrace(16, {process.pid}, 0, 0) == 0
os.waitpid({process.pid}, 0x40000000)
"""
        assert not await attempt(box, trace)
        assert await asyncio.to_thread(control, trace)


@pytest.mark.requirement("F50")
async def test_no_address_answers(make: Make) -> None:
    """Also none of the host's own, by number or name, over TCP, UDP and abstract sockets."""
    box = await make()
    server = await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", 0)
    port = server.sockets[0].getsockname()[1]
    hidden = socket.socket(socket.AF_UNIX)
    hidden.bind(f"\0stockade-{os.getpid()}")
    hidden.listen()
    connect = "import socket; socket.create_connection(({!r}, {}), 3)"
    try:
        for address in ("127.0.0.1", socket.gethostname(), "169.254.169.254", "192.0.2.1", "host.docker.internal"):
            assert not await attempt(box, connect.format(address, port)), address
        abstract = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0stockade-{os.getpid()}')"
        assert not await attempt(box, abstract)
        assert await asyncio.to_thread(control, connect.format("127.0.0.1", port))
        assert await asyncio.to_thread(control, abstract)
    finally:
        hidden.close()
        server.close()


async def test_a_fork_bomb_hits_the_limit_and_the_sandbox_can_be_destroyed(make: Make) -> None:
    box = await make({"pids": 64})
    bomb = """
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(600); os._exit(0)
        count += 1
except OSError:
    print(count)
"""
    done = await box.run("python3", "-I", "-c", bomb)
    assert 0 < int(done.text) < 64
    await box.destroy(0.2)


async def test_a_memory_bomb_dies_and_the_host_does_not_notice(make: Make) -> None:
    box = await make({"memory": "128m"})
    done = await box.run("python3", "-I", "-c", "x = b'x' * (512 << 20)")
    assert done.result["exit_code"] != 0 or done.result["signal"]
    assert await box.sh("echo alive") == "alive"


async def test_temporary_files_have_a_limit(make: Make) -> None:
    box = await make({"tmp_size": "32m"})
    done = await box.run("sh", "-c", "head -c 100000000 /dev/zero > /tmp/bomb")
    assert done.result["exit_code"] != 0
    assert b"No space left" in done.stderr
