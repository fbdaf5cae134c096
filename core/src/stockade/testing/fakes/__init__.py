"""Stand-ins for each part, to test the others against. Standard library only.

A fake proves nothing about a boundary; use it for what the kernel or a plugin does, not for what a sandbox holds.
"""

from stockade.testing.fakes.authority import RecordingMinter, RecordingPolicy
from stockade.testing.fakes.channel import MemoryChannel
from stockade.testing.fakes.driver import Behaviour, FakeTurn, MemoryDriver, MemorySandbox, complete
from stockade.testing.fakes.engine import NullEngine, ScriptedEngine
from stockade.testing.fakes.route import MemoryStream, RecordingRoute

__all__ = [
    "Behaviour",
    "FakeTurn",
    "MemoryChannel",
    "MemoryDriver",
    "MemorySandbox",
    "MemoryStream",
    "NullEngine",
    "RecordingMinter",
    "RecordingPolicy",
    "RecordingRoute",
    "ScriptedEngine",
    "complete",
]
