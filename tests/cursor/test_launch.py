"""What the engine is before anything runs: its module, its bridge, what it says about the host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.errors import EngineFailed
from stockade_cursor import command
from stockade_cursor.engine import CursorEngine


@pytest.mark.requirement("L20")
def test_importing_the_engine_takes_the_standard_library_and_the_kernel_only() -> None:
    code = "import json, sys; import stockade_cursor.engine; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"aiohttp", "cursor_sdk", "httpx", "pluggy", "pydantic", "stockade_gateway", "yarl"}


@pytest.mark.requirement("L44")
def test_the_engine_says_which_key_it_needs_inside() -> None:
    assert CursorEngine.PROVIDER_KEYS == ("CURSOR_API_KEY",)


@pytest.mark.needs("cursor")
def test_the_doctor_is_told_which_bridge_there_is() -> None:
    (finding,) = CursorEngine.diagnose()
    assert (finding.status, Path(finding.detail).name) == ("ok", "cursor-sdk-bridge")


def test_without_the_sdk_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(EngineFailed) as caught:
        command.find_bridge({})
    assert caught.value.hint == "Install it with: pip install cursor-sdk"
    (finding,) = CursorEngine.diagnose()
    assert (finding.status, finding.fix) == ("fail", "Install it with: pip install cursor-sdk")
