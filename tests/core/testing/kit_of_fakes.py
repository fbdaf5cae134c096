"""The public fakes pass, and a module that answers every hook. Run by `test_other_kits`, as a third party's tests."""

from __future__ import annotations

import pytest

from stockade.contracts.authority import AdmissionPolicy, TokenMinter
from stockade.contracts.route import Route
from stockade.model.authority import SandboxRequest, Verdict
from stockade.testing import Capabilities, HookContract, MinterContract, PolicyContract, RouteContract
from stockade.testing.examples import Requests, example_request
from stockade.testing.fakes import RecordingMinter, RecordingPolicy, RecordingRoute
from stockade.testing.minter import Verify
from stockade.testing.route import Dialogue
from tests.core.testing.faulty_hooks import Good


def read_only(request: SandboxRequest) -> Verdict:
    if request.file_access == "read-only":
        return Verdict.allow()
    return Verdict.deny("only read-only sandboxes are allowed here")


class TestPolicy(PolicyContract):
    @pytest.fixture
    def policy(self) -> AdmissionPolicy:
        return RecordingPolicy(read_only)

    @pytest.fixture
    def requests(self) -> Requests:
        return Requests(allowed=[example_request()], denied=[example_request(file_access="full")])


class TestMinter(MinterContract):
    capabilities = Capabilities(durable=False)

    @pytest.fixture
    def minter(self) -> TokenMinter:
        return RecordingMinter()

    @pytest.fixture
    def verify(self, minter: RecordingMinter) -> Verify:
        return minter.verify


class Echo:
    def request(self, key: str, payload: str) -> bytes:
        return f"{key}\n{payload}".encode()

    def answers(self, payload: str, answer: bytes) -> bool:
        return payload.encode() in answer


class TestRoute(RouteContract):
    dialect = "echo"

    @pytest.fixture
    def route(self) -> Route:
        return RecordingRoute()

    @pytest.fixture
    def unconfigured(self) -> Route:
        return RecordingRoute(dialects=())

    @pytest.fixture
    def dialogue(self) -> Dialogue:
        return Echo()


class TestHooks(HookContract):
    @pytest.fixture
    def module(self) -> Good:
        return Good()
