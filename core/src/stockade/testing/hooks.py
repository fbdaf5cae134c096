"""The contract kit of hook modules."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.cli.group import CommandGroup
from stockade.errors import PluginError
from stockade.model.authority import Claims, SandboxRequest
from stockade.plugins.discovery import LoadedPlugin
from stockade.plugins.hooks import Hooks, implemented, new_manager, register
from stockade.plugins.scan import GROUPS, EntryPoint
from stockade.settings import Settings
from stockade.testing.bounds import BLOCKED
from stockade.testing.capabilities import Kit
from stockade.testing.examples import example_claims, example_request

LIMITS = {"requests": 100, "input_tokens": 10_000, "output_tokens": 10_000, "cost_microdollars": 10_000}


class HookContract(Kit):
    """What every hook module owes. Subclass it, and give one fixture::

        from stockade.testing import HookContract

        class TestMyHooks(HookContract):
            @pytest.fixture
            def module(self):
                return my_package.plugin

    There is a test for each hook; that of a hook which the module does not answer is skipped. The objects that
    hooks answer with have kits of their own. Optional: the fixture ``settings`` for what the module needs to be set.
    """

    @pytest.fixture
    def module(self) -> Any:
        """The module under test. To be given."""
        raise NotImplementedError("give a fixture `module` that returns the hook module")

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        """The kernel's settings. Override with what the module needs."""
        return Settings.load(home=tmp_path / "home")

    def test_it_can_be_registered(self, module: Any) -> None:
        """Its hooks exist, take the arguments that they are given, and are no coroutines and no wrappers."""
        assert _hooks(module)[1], "it answers no hook: was stockade.hookimpl forgotten?"

    def test_select_driver(self, module: Any) -> None:
        """One of the drivers that there are, or no opinion."""
        _ask(module, "select_driver", lambda hooks, request: hooks.select_driver(request, ("process", "docker")))

    def test_driver_constraints(self, module: Any) -> None:
        """`Constraints` that can be compared, or no opinion."""
        _ask(module, "driver_constraints", lambda hooks, request: hooks.driver_constraints(request))

    def test_engine_environment(self, module: Any) -> None:
        """Variables: no provider's key, and none of the kernel's own (L38, L80)."""
        _ask(module, "engine_environment", lambda hooks, request: hooks.engine_environment(request))

    def test_prepare_workspace(self, module: Any) -> None:
        """A `Preparation`, or nothing to do."""
        _ask(module, "prepare_workspace", lambda hooks, request: hooks.prepare_workspace(request))

    def test_admission_policies(self, module: Any, settings: Settings) -> None:
        """A sequence of `AdmissionPolicy` objects."""
        _ask(module, "admission_policies", lambda hooks, _: hooks.admission_policies(settings))

    def test_routes(self, module: Any, settings: Settings) -> None:
        """`Route` objects by name."""
        _ask(module, "routes", lambda hooks, _: hooks.routes(settings))

    def test_observers(self, module: Any, settings: Settings) -> None:
        """A sequence of `Observer` objects."""
        _ask(module, "observers", lambda hooks, _: hooks.observers(settings))

    def test_register_commands(self, module: Any) -> None:
        """Commands with lower-case names that it adds once; the hook itself answers nothing."""
        _ask(module, "register_commands", lambda hooks, _: hooks.register_commands(CommandGroup()))

    def test_token_claims(self, module: Any) -> None:
        """`ClaimLimits`, which narrow: the claims themselves stay as they are, and no limit grows."""
        hooks, answered = _hooks(module)
        _skip_unless("token_claims", answered)
        for claims in (example_claims(), example_claims(models=("one", "two"), **LIMITS), example_claims(models=())):
            before = copy.deepcopy(claims)
            narrowed = hooks.token_claims(claims)
            assert claims == before, "it changed the claims instead of answering with limits"
            assert _wider(narrowed, before) == []

    def test_hooks_are_cheap(self, module: Any) -> None:
        """They are called while the kernel serves others: what takes long is for the objects that they answer with."""
        hooks, answered = _hooks(module)
        calls: dict[str, Callable[[], object]] = {
            "select_driver": lambda: hooks.select_driver(example_request(driver=""), ("process", "docker")),
            "driver_constraints": lambda: hooks.driver_constraints(example_request()),
            "engine_environment": lambda: hooks.engine_environment(example_request()),
            "prepare_workspace": lambda: hooks.prepare_workspace(example_request()),
            "token_claims": lambda: hooks.token_claims(example_claims()),
        }
        for name in calls.keys() & set(answered):
            assert min(_seconds(calls[name]) for _ in range(3)) < BLOCKED, name


def _hooks(module: Any) -> tuple[Hooks, list[str]]:
    """The module as the kernel loads it, and the hooks that it answers. Raises `PluginBroken`."""
    manager = new_manager()
    entry = EntryPoint(GROUPS["hooks"], "under-test", getattr(module, "__name__", "module"), "under-test", "0")
    register(manager, LoadedPlugin(entry, module))
    return Hooks(manager), implemented(manager)


def _ask(module: Any, name: str, ask: Callable[[Hooks, SandboxRequest], object]) -> None:
    """Ask a hook twice, with an ordinary request and with a bare command's; the kernel's own checks raise."""
    hooks, answered = _hooks(module)
    _skip_unless(name, answered)
    for request in (example_request(driver=""), example_request(driver="", engine="", user="", session="")):
        before = copy.deepcopy(request)
        ask(hooks, request)
        assert request == before, "it changed the request"


def _skip_unless(name: str, answered: list[str]) -> None:
    if name not in answered:
        pytest.skip(f"not claimed: the module answers no hook {name}")


def _wider(narrowed: Claims, claims: Claims) -> list[str]:
    """The fields that allow more than before."""
    wider = []
    for field in dataclasses.fields(Claims):
        new, old = getattr(narrowed, field.name), getattr(claims, field.name)
        if field.name == "models":
            grown = old is not None and (new is None or not set(new) <= set(old))
        elif field.name == "expires" or field.name in LIMITS:
            grown = old is not None and (new is None or new > old)
        else:
            grown = new != old
        wider += [field.name] if grown else []
    return wider


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    with contextlib.suppress(PluginError):  # another test's
        call()
    return time.perf_counter() - start
