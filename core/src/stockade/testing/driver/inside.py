"""What a sandbox's programs find: streams, environment, directories, descriptors."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import pytest

from stockade.testing.bounds import bounded
from stockade.testing.capabilities import requires
from stockade.testing.driver import processes
from stockade.testing.driver.base import DriverKit, Make

KERNEL = {
    "HOME",
    "TMPDIR",
    "PWD",
    "LC_CTYPE",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "STOCKADE_SANDBOX",
    "STOCKADE_SCOPE",
    "STOCKADE_TIER",
}
"""Variables that the inside program, or Python itself, sets; what a spec says of them does not count (L22, L38)."""


class InsideTests(DriverKit):
    """The place that the driver makes."""

    @bounded
    async def test_a_command_has_its_streams_and_its_exit_code(self, make: Make) -> None:
        """Every byte crosses the channel unchanged, in both directions, and stderr apart from stdout (F24)."""
        box = await make()
        data = bytes(range(256)) * 2048
        done = await box.run("sh", "-c", "cat; echo problem >&2; exit 7", stdin=data)
        assert done.stdout == data
        assert done.stderr == b"problem\n"
        assert (done.result["exit_code"], done.result["signal"]) == (7, None)

    @bounded
    async def test_the_environment_is_what_the_spec_says(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        """All of it, and nothing of the host's besides (L20, L38, F33)."""
        monkeypatch.setenv("KIT_CANARY", "canary-of-the-host")
        box = await make(extra={"KIT_GIVEN": "spaces, an = sign,\nanother line and ünïcödé", "KIT_EMPTY": ""})
        done = await box.run("cat", "/proc/self/environ")
        lines = done.stdout.decode().split("\0")
        found = dict(line.split("=", 1) for line in lines if line)
        own = KERNEL | self.own_variables
        assert {n: v for n, v in found.items() if n not in own} == {
            n: v for n, v in box.spec.environment.items() if n not in own
        }

    @requires("host_processes")
    @bounded
    async def test_no_secret_is_on_a_command_line(self, make: Make) -> None:
        """Command lines are for all to read (F34)."""
        secret = secrets.token_hex(16)  # this kit may run beside itself
        box = await make(extra={"KIT_SECRET": secret})
        assert await box.sh("echo $KIT_SECRET") == secret
        shown = [line for line in processes.command_lines().values() if secret.encode() in line]
        assert not shown

    @bounded
    async def test_the_handle_is_json_and_holds_no_secret(self, make: Make) -> None:
        """The kernel writes it down."""
        box = await make(extra={"KIT_SECRET": "secret-of-the-kit"})
        text = json.dumps(dict(box.sandbox.handle))
        assert "secret-of-the-kit" not in text
        assert json.loads(text) == box.sandbox.handle, "the handle is not the same after a journey through JSON"

    @bounded
    async def test_commands_start_in_the_workspace(self, make: Make) -> None:
        """A relative path is one in the workspace (L24, L25)."""
        box = await make()
        (box.spec.workspace / "kit-there").touch()
        await box.sh("echo made > kit-made")
        found = await box.sh("ls; pwd -P")
        assert found.split("\n")[:-1] in (["kit-made", "kit-there"], ["kit-made"])
        if self.capabilities.host_files:
            assert (box.spec.workspace / "kit-made").read_text() == "made\n"
            assert "kit-there" in found

    @bounded
    async def test_files_go_in_and_come_out(self, make: Make, tmp_path: Path) -> None:
        """A folder is the same after the journey, and inside it belongs to the sandbox's user (F95, S69)."""
        tree, data = tmp_path / "kit-tree", os.urandom(300_000)
        (tree / "empty").mkdir(parents=True)
        (tree / "run").write_bytes(data)
        (tree / "run").chmod(0o755)
        box = await make()
        await box.upload(tree, "kit-copied")
        assert await box.sh("cd kit-copied && test -x run && test -O run && test -d empty && wc -c < run") == "300000"
        await box.download("kit-copied", tmp_path / "kit-back")
        found = {path.name: path.stat().st_mode for path in (tmp_path / "kit-back").iterdir()}
        assert found == {path.name: path.stat().st_mode for path in tree.iterdir()}
        assert (tmp_path / "kit-back" / "run").read_bytes() == data

    @requires("host_files")
    @bounded
    async def test_home_and_temporary_files_lie_in_the_state_dir(self, make: Make) -> None:
        """So do the folders of the XDG specification: whatever writes by default writes there (L22, L23)."""
        box = await make()
        names = ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
        await box.sh("; ".join(f'echo kept > "${name}/kit-{name}"' for name in names))
        assert {path.name for path in box.spec.state_dir.rglob("kit-*")} == {f"kit-{name}" for name in names}

    @requires("host_files")
    @bounded
    async def test_the_state_dir_outlives_the_sandbox(self, make: Make) -> None:
        """What one sandbox of a key leaves there, the next one finds (L34)."""
        one = await make()
        await one.sh('echo kept > "$HOME/kit-kept"')
        await one.destroy()
        other = await make(state_dir=one.spec.state_dir)
        assert await other.sh('cat "$HOME/kit-kept"') == "kept"

    @bounded
    async def test_descriptors_of_the_host_stay_outside(self, make: Make, tmp_path: Path) -> None:
        """A file or socket that the kernel has open is none of a sandbox's."""
        with (tmp_path / "kit-open-on-the-host").open("w") as file:
            os.set_inheritable(file.fileno(), True)
            box = await make()
            links = await box.sh("readlink /proc/self/fd/* /proc/$PPID/fd/*; true")
        assert "kit-open-on-the-host" not in links
