"""The allow-list and the deny-list."""

from pathlib import Path

import pytest

from stockade.errors import SettingsError
from stockade.plugins.scan import EntryPoint
from stockade.plugins.selection import Selection, parse_names, read_selection
from stockade.settings import Settings

ENTRY = EntryPoint("stockade.drivers", "docker", "m:D", "Stockade.Docker", "1.0")


@pytest.mark.parametrize(
    ("selection", "setting"),
    [
        (Selection(), ""),
        (Selection(["docker"]), ""),
        (Selection(["stockade-docker"]), ""),
        (Selection(["process"]), "plugins"),
        (Selection([]), "plugins"),
        (Selection(None, ["docker"]), "plugins_disabled"),
        (Selection(["docker"], ["stockade_docker"]), "plugins_disabled"),
    ],
)
def test_a_name_of_the_plugin_or_of_its_distribution_decides_and_deny_wins(selection: Selection, setting: str) -> None:
    assert selection.blocked_by(ENTRY) == setting
    assert selection.enabled(ENTRY) is not bool(setting)


@pytest.mark.parametrize("value", ['["a", "b"]', "a,b", " a , b ,", ["a", "b"], ("a", "b")])
def test_names_are_a_json_list_or_have_commas(value: object) -> None:
    assert parse_names(value) == ("a", "b")


@pytest.mark.parametrize("value", ['["sec', "[17]", 5, {"a": 1}, [1]])
def test_other_values_are_refused_without_being_repeated(value: object) -> None:
    with pytest.raises(ValueError, match="list of names") as caught:
        parse_names(value)
    assert str(value) not in str(caught.value)


def test_the_light_reader_and_the_settings_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stockade.toml").write_text('plugins = ["a", "b"]\nplugins_disabled = ["c"]\n')
    monkeypatch.setenv("STOCKADE_PLUGINS_DISABLED", '["d"]')
    light, full = read_selection(), Settings.load().selection
    assert (light.allow, light.deny) == (full.allow, full.deny) == (frozenset("ab"), frozenset("d"))


def test_a_list_that_is_wrong_names_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOCKADE_PLUGINS", '["a"')
    with pytest.raises(SettingsError, match="STOCKADE_PLUGINS"):
        read_selection()


def test_a_misspelt_name_in_the_lists_is_found() -> None:
    assert Selection(["docker", "dokcer"], ["prcess"]).unmatched([ENTRY]) == ["dokcer", "prcess"]
