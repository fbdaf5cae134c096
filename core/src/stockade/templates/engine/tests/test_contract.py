"""The engine passes the contract kit."""

import pytest
from scripted_model import rehearse as scripted_model

from stockade.testing import Capabilities, EngineContract
from stockade.testing.rehearsal import Rehearse
from stockade_acme.engine import AcmeEngine


class TestAcmeEngine(EngineContract):
    # What is not claimed is not tested. Each of these is something to build.
    capabilities = Capabilities(streaming=False, thinking=False, workspace_write=False, mcp=False)
    model = "any-model"

    @pytest.fixture
    def engine(self) -> type[AcmeEngine]:
        return AcmeEngine

    @pytest.fixture
    def rehearse(self) -> Rehearse:
        return scripted_model
