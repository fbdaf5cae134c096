"""The minter passes the contract kit."""

import pytest

from stockade.testing import Capabilities, MinterContract
from stockade.testing.minter import Verify
from stockade_acme.minter import AcmeMinter


class TestAcmeMinter(MinterContract):
    # Only the kernel that minted a token, and while it runs, knows what it is worth.
    capabilities = Capabilities(durable=False)

    @pytest.fixture
    def minter(self) -> AcmeMinter:
        return AcmeMinter({})

    @pytest.fixture
    def verify(self, minter: AcmeMinter) -> Verify:
        return minter.verify
