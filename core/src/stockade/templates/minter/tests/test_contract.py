"""The minter passes the contract kit."""

import pytest

from stockade.testing import MinterContract
from stockade.testing.minter import Verify
from stockade_acme.minter import AcmeMinter


class TestAcmeMinter(MinterContract):
    @pytest.fixture
    def minter(self) -> AcmeMinter:
        return AcmeMinter({})

    @pytest.fixture
    def verify(self, minter: AcmeMinter) -> Verify:
        return minter.verify
