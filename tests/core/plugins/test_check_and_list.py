"""``stockade plugins list`` and ``check``, as a person calls them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.cli.app import main
from tests.support.toys import Toys

DRIVER = """
from stockade.contracts.driver import Driver
class Toy(Driver):
    API_VERSION = (1, 0)
    async def create(self, spec): ...
    async def reap(self, owned): return []
"""
HEAVY = ("asyncio", "pydantic", "cryptography", "aiohttp", "pluggy", "stevedore", "importlib.metadata", "dataclasses")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def put(toys: Toys, source: str = DRIVER, **more: str) -> None:
    toys.dist("toy-driver", {"stockade.drivers": {"toy": "toy_driver:Toy"}}, modules={"toy_driver": source}, **more)  # type: ignore[arg-type]


def check(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["plugins", *args])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_list_has_kind_name_dist_version_api_and_enabled(
    toys: Toys, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(toys, requires="stockade<0.2,>=0.1")
    toys.hooks("off", "raise SystemExit")
    monkeypatch.setenv("STOCKADE_PLUGINS_DISABLED", "off")
    code, out, _ = check(capsys, "list")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["KIND", "NAME", "DIST", "VERSION", "API", "ENABLED"],
        ["driver", "toy", "toy-driver", "1.0", "<0.2,>=0.1", "yes"],
        ["hooks", "off", "toy-off", "1.0", "-", "no", "(plugins_disabled)"],
    ]


def test_the_list_as_json_is_one_array(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    put(toys)
    _, out, _ = check(capsys, "list", "--json")
    (row,) = json.loads(out)
    assert row == {
        "kind": "driver",
        "name": "toy",
        "dist": "toy-driver",
        "version": "1.0",
        "api": "-",
        "enabled": True,
        "disabled_by": "",
        "value": "toy_driver:Toy",
    }


def test_an_empty_list_says_how_to_fill_it_and_as_json_is_empty(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    assert "pip install" in check(capsys, "list")[1]
    assert json.loads(check(capsys, "list", "--json")[1]) == []


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_listing_imports_neither_plugins_nor_libraries(toys: Toys, options: list[str]) -> None:
    """A broken plugin cannot break it, and it stays cheap."""
    put(toys, "raise SystemExit('imported')")
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom stockade.cli.app import main\n"
        f"code = main({['plugins', 'list', *options]!r})\n"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)\nsys.exit(code)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "toy" in done.stdout
    imported = done.stderr.split()
    assert not [name for name in imported if name in HEAVY or name.partition(".")[0] in HEAVY]
    assert "toy_driver" not in imported


def test_a_sound_plugin_is_ok_and_shows_its_contract_version(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    put(toys)
    toys.hooks("watch", "@hookimpl\ndef observers(settings): return []\n@hookimpl\ndef routes(settings): return {}")
    code, out, _ = check(capsys, "check")
    assert code == 0
    assert out.splitlines() == [
        "ok     driver toy (toy-driver 1.0)  [1.0]",
        "ok     hooks watch (toy-watch 1.0)  [observers, routes]",
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise SystemExit(1)", "cannot be imported"),
        (DRIVER.replace("(1, 0)", "(9, 0)"), "written for contract 9.0"),
        (DRIVER.replace("create(self, spec)", "create(self)"), "create(self) cannot be called as create(self"),
        (DRIVER + "    def __init__(self): ...", "__init__(self) cannot be called"),
        (DRIVER + "    aclose = None", "aclose is a NoneType, not a method"),
        (DRIVER.replace("reap", "rape"), "does not implement reap"),
    ],
)
def test_a_fault_is_told_and_the_exit_status_is_1(
    toys: Toys, capsys: pytest.CaptureFixture[str], source: str, message: str
) -> None:
    put(toys, source)
    code, out, _ = check(capsys, "check", "toy")
    assert code == 1
    assert out.startswith("FAULT  driver toy (toy-driver 1.0)")
    assert message in out


def test_one_fault_does_not_hide_the_others(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    put(toys, "raise SystemExit")
    toys.hooks("typo", "@hookimpl\ndef obsevers(settings): ...")
    toys.hooks("good", "@hookimpl\ndef observers(settings): return []")
    code, out, _ = check(capsys, "check", "--json")
    assert code == 1
    codes = {finding["name"]: finding["code"] for finding in json.loads(out)}
    assert codes == {"toy": "plugin_broken", "typo": "plugin_broken", "good": ""}


@pytest.mark.parametrize(
    ("source", "remark"),
    [
        (DRIVER.replace("    API_VERSION = (1, 0)\n", ""), "does not state API_VERSION"),
        (DRIVER.replace("async def reap", "def reap"), "reap is not declared async"),
    ],
)
def test_what_works_by_luck_is_a_remark(
    toys: Toys, capsys: pytest.CaptureFixture[str], source: str, remark: str
) -> None:
    put(toys, source)
    code, out, _ = check(capsys, "check")
    assert code == 0
    assert remark in out


def test_a_hook_module_that_answers_nothing_gets_a_remark(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    toys.hooks("idle", "def observers(settings): return []")
    assert "hookimpl forgotten?" in check(capsys, "check")[1]


def test_a_disabled_plugin_is_not_imported(
    toys: Toys, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(toys, "raise SystemExit('imported')")
    monkeypatch.setenv("STOCKADE_PLUGINS_DISABLED", "toy, tyo")
    code, out, _ = check(capsys, "check")
    assert code == 0
    assert "disabled by plugins_disabled  driver toy" in out
    assert "'tyo', which nothing installed answers to" in out
    assert "toy_driver" not in sys.modules
    code, _, err = check(capsys, "check", "toy")
    assert code == 1
    assert "plugin_not_found" in err
    assert "STOCKADE_PLUGINS_DISABLED" in err


def test_a_name_that_is_not_installed_is_not_found(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    put(toys)
    code, _, err = check(capsys, "check", "moon")
    assert code == 1
    assert "plugin_not_found" in err
    assert "installed: toy" in err


def test_two_distributions_of_one_name_are_both_at_fault(toys: Toys, capsys: pytest.CaptureFixture[str]) -> None:
    put(toys)
    toys.dist("toy-other", {"stockade.drivers": {"toy": "toy_driver:Toy"}})
    code, out, _ = check(capsys, "check", "toy", "--json")
    assert code == 1
    assert [finding["code"] for finding in json.loads(out)] == ["plugin_ambiguous"] * 2
