"""An engine whose module imports more than the standard library."""

from __future__ import annotations

import pluggy

from tests.core.testing.faults import fails
from tests.core.testing.toy_engine import Toy


@fails("test_importing_it_takes_the_standard_library_only")
class ImportsItsSdk(Toy):
    """pluggy stands for an SDK."""

    sdk = pluggy
