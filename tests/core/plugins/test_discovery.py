"""Loading by name, and the four errors."""

import os
import sys
from pathlib import Path

import pytest

from stockade.contracts.driver import Driver
from stockade.errors import PluginAmbiguous, PluginBroken, PluginIncompatible, PluginNotFound
from stockade.plugins.discovery import find, load
from stockade.plugins.selection import Selection
from tests.support.toys import Toys

DRIVER = """
from stockade.contracts.driver import Driver

class Toy(Driver):
    API_VERSION = (1, 0)
    async def create(self, spec): ...
    async def reap(self, owned): return []
"""
ALL = Selection()


def driver(toys: Toys, source: str = DRIVER, dist: str = "toy-driver", module: str = "toy_driver") -> None:
    toys.dist(dist, {"stockade.drivers": {"toy": f"{module}:Toy"}}, modules={module: source})


def test_a_driver_is_loaded_by_its_name(toys: Toys) -> None:
    driver(toys)
    loaded = load("driver", "toy", ALL)
    assert issubclass(loaded.obj, Driver)
    assert loaded.entry.dist == "toy-driver"


def test_loading_leaves_no_cache_file(toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    driver(toys)
    load("driver", "toy", ALL)
    assert not os.path.exists(tmp_path / "cache")


def test_a_missing_name_lists_what_is_installed_and_the_pip_command(toys: Toys) -> None:
    driver(toys)
    with pytest.raises(PluginNotFound) as caught:
        load("driver", "toi", ALL)
    assert caught.value.plugin == "toi"
    assert "toy (toy-driver 1.0)" in str(caught.value)
    assert "Did you mean 'toy'?" in caught.value.hint
    assert "pip install stockade-toi" in caught.value.hint


@pytest.mark.requirement("L58")
def test_no_pip_command_is_made_of_a_name_that_is_none(toys: Toys) -> None:
    with pytest.raises(PluginNotFound) as caught:
        load("driver", "x; rm -rf ~", ALL)
    assert "pip" not in caught.value.hint


@pytest.mark.parametrize(
    ("selection", "setting"),
    [(Selection(["other"]), "STOCKADE_PLUGINS"), (Selection(None, ["toy"]), "STOCKADE_PLUGINS_DISABLED")],
)
def test_a_disabled_plugin_is_not_imported_and_the_error_names_the_setting(
    toys: Toys, selection: Selection, setting: str
) -> None:
    driver(toys)
    with pytest.raises(PluginNotFound, match="not enabled") as caught:
        load("driver", "toy", selection)
    assert caught.value.hint.endswith(f"{setting}.")
    assert "toy_driver" not in sys.modules


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise SystemExit(3)", SystemExit),
        ("assert False, 'no'", AssertionError),
        ("import nothing_of_this_name", ModuleNotFoundError),
        ("def (", SyntaxError),
        ("Tow = 1", AttributeError),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_broken_and_the_cause_is_chained(
    toys: Toys, source: str, cause: type[BaseException]
) -> None:
    driver(toys, source)
    with pytest.raises(PluginBroken) as caught:
        load("driver", "toy", ALL)
    assert isinstance(caught.value.__cause__, cause)
    assert "toy (toy-driver 1.0)" in caught.value.message
    assert "STOCKADE_PLUGINS_DISABLED" in caught.value.hint


def test_ctrl_c_during_an_import_is_ctrl_c(toys: Toys) -> None:
    driver(toys, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load("driver", "toy", ALL)


def test_a_value_that_names_no_object_is_broken(toys: Toys) -> None:
    toys.dist("toy-driver", {"stockade.drivers": {"toy": "not a module!"}})
    with pytest.raises(PluginBroken):
        load("driver", "toy", ALL)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class Toy: pass", "not a subclass of stockade.contracts.driver.Driver"),
        ("Toy = 5", "is a int, not a subclass"),
        (
            "from stockade.contracts.driver import Driver\nclass Toy(Driver):\n async def create(self, spec): ...",
            "does not implement reap",
        ),
        (DRIVER.replace("(1, 0)", "'1.0'"), "API_VERSION must be two numbers"),
    ],
)
def test_what_does_not_fulfil_the_contract_is_broken(toys: Toys, source: str, message: str) -> None:
    driver(toys, source)
    with pytest.raises(PluginBroken, match=message):
        load("driver", "toy", ALL)


@pytest.mark.parametrize(
    ("version", "advice"),
    [((2, 0), "upgrade stockade"), ((1, 1), "upgrade stockade"), ((0, 9), "upgrade toy-driver")],
)
def test_another_major_or_a_newer_minor_version_is_incompatible(
    toys: Toys, version: tuple[int, int], advice: str
) -> None:
    driver(toys, DRIVER.replace("(1, 0)", str(version)))
    with pytest.raises(PluginIncompatible, match=r"this kernel has 1\.0") as caught:
        load("driver", "toy", ALL)
    assert advice in caught.value.hint


def test_a_plugin_of_another_major_version_need_not_inherit_from_this_one(toys: Toys) -> None:
    driver(toys, "class Toy:\n API_VERSION = (2, 0)")
    with pytest.raises(PluginIncompatible):
        load("driver", "toy", ALL)


def test_two_distributions_of_one_name_are_ambiguous_before_either_is_imported(toys: Toys) -> None:
    driver(toys)
    driver(toys, dist="toy-other", module="toy_other")
    with pytest.raises(PluginAmbiguous) as caught:
        load("driver", "toy", ALL)
    assert "toy-driver 1.0" in caught.value.message
    assert "toy-other 1.0" in caught.value.message
    assert not {"toy_driver", "toy_other"} & set(sys.modules)


def test_disabling_one_distribution_ends_the_ambiguity(toys: Toys) -> None:
    driver(toys)
    driver(toys, dist="toy-other", module="toy_other")
    assert load("driver", "toy", Selection(None, ["toy-driver"])).entry.dist == "toy-other"


def test_one_name_may_be_used_for_plugins_of_different_kinds(toys: Toys) -> None:
    driver(toys)
    toys.dist("toy-engine", {"stockade.engines": {"toy": "toy_engine:Toy"}})
    assert find("engine", "toy", ALL).value == "toy_engine:Toy"


def test_a_hook_module_may_not_be_a_class(toys: Toys) -> None:
    toys.dist("toy-hooks", {"stockade.plugins": {"toy": "toy_hooks:Toy"}}, modules={"toy_hooks": "class Toy: pass"})
    with pytest.raises(PluginBroken, match="hooks of a class"):
        load("hooks", "toy", ALL)
