"""File, variables, arguments; and errors that name their source and hold no value."""

import logging
from pathlib import Path

import pytest

from stockade.errors import SettingsError
from stockade.settings import Settings

SECRET = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "stockade.toml") -> None:
    Path(name).write_text(text)


def test_later_sources_win(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load().ttl == 3600.0
    write("ttl = 10")
    assert Settings.load().ttl == 10.0
    monkeypatch.setenv("STOCKADE_TTL", "20")
    assert Settings.load().ttl == 20.0
    assert Settings.load(ttl=30).ttl == 30.0


def test_an_argument_that_is_none_was_not_given() -> None:
    write('driver = "docker"')
    assert Settings.load(driver=None).driver == "docker"


def test_two_underscores_nest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKADE_ADMISSION__REQUIRED", '["corp-policy"]')
    write("[admission]\ntimeout = 3")
    admission = Settings.load().admission
    assert (admission.required, admission.timeout) == (("corp-policy",), 3.0)


@pytest.mark.parametrize("value", ['["a", "b"]', "a,b"])
def test_lists_are_json_or_have_commas(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    for name in ("PLUGINS", "PLUGINS_DISABLED", "ENV_PASS", "ADMISSION__REQUIRED"):
        monkeypatch.setenv(f"STOCKADE_{name}", value)
    settings = Settings.load()
    expected = ("a", "b")
    assert settings.plugins == settings.plugins_disabled == settings.env_pass == settings.admission.required == expected


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty allow-list would disable everything, an empty ``required`` would switch a protection off."""
    write('[admission]\nrequired = ["corp-policy"]')
    monkeypatch.setenv("STOCKADE_PLUGINS", "")
    monkeypatch.setenv("STOCKADE_ADMISSION__REQUIRED", "")
    settings = Settings.load()
    assert settings.plugins is None
    assert settings.admission.required == ("corp-policy",)


def test_stockade_config_names_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("ttl = 1")
    write("ttl = 2", "other.toml")
    monkeypatch.setenv("STOCKADE_CONFIG", "other.toml")
    assert Settings.load().ttl == 2.0


def test_a_settings_file_that_was_named_and_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKADE_CONFIG", "absent.toml")
    with pytest.raises(SettingsError, match=r"absent\.toml does not exist"):
        Settings.load()


def test_a_file_that_is_not_toml_is_an_error_with_the_line() -> None:
    write("ttl = = 3")
    with pytest.raises(SettingsError, match=r"stockade\.toml is not TOML.*line 1"):
        Settings.load()


def test_tables_of_plugins_merge_over_all_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    write('[plugin.my-driver]\nimage = "a"\nsize = 1\nnested = {x = 1}')
    monkeypatch.setenv("STOCKADE_PLUGIN__MY_DRIVER__SIZE", "2")
    monkeypatch.setenv("STOCKADE_PLUGIN__MY_DRIVER__NESTED__Y", "true")
    monkeypatch.setenv("STOCKADE_PLUGIN__MY_DRIVER__MODE", "require")
    options = {"image": "a", "size": 2, "nested": {"x": 1, "y": True}, "mode": "require"}
    settings = Settings.load()
    assert settings.options("my-driver") == settings.options("my_driver") == options
    assert settings.options("other") == {}


def test_home_defaults_to_the_state_directory_of_the_platform(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.delenv("STOCKADE_HOME")
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert Settings.load().home == here / ".local" / "state" / "stockade"
    monkeypatch.setenv("XDG_STATE_HOME", "relative-is-invalid")
    assert Settings.load().home == here / ".local" / "state" / "stockade"
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "xdg"))
    assert Settings.load().home == here / "xdg" / "stockade"
    monkeypatch.setenv("STOCKADE_HOME", "~/mine")
    assert Settings.load().home == here / "mine"


def test_an_unknown_key_in_the_file_is_an_error_with_a_suggestion() -> None:
    write("[admission]\nrequierd = ['corp']")
    with pytest.raises(SettingsError, match=r"admission\.requierd in stockade\.toml") as caught:
        Settings.load()
    assert "Did you mean admission.required?" in caught.value.hint


def test_a_misspelt_variable_is_an_error_with_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ignore it could switch a protection off."""
    monkeypatch.setenv("STOCKADE_ADMISSON__REQUIRED", "corp-policy")
    with pytest.raises(SettingsError, match="STOCKADE_ADMISSON__REQUIRED") as caught:
        Settings.load()
    assert "STOCKADE_ADMISSION__REQUIRED" in caught.value.hint


def test_a_foreign_variable_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STOCKADE_WEATHER_FEED", SECRET)
    with caplog.at_level(logging.WARNING):
        Settings.load()
    assert "STOCKADE_WEATHER_FEED" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("name", ["STOCKADE_SANDBOX", "STOCKADE_TIER", "STOCKADE_SCOPE", "STOCKADE_DEBUG"])
def test_variables_that_are_read_elsewhere_are_no_settings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    Settings.load()
    assert not caplog.text


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STOCKADE_TTL", SECRET),
        ("STOCKADE_TTL", "-1"),
        ("STOCKADE_TTL", "inf"),
        ("STOCKADE_TTL", "nan"),
        ("STOCKADE_LEASE", "-7"),
        ("STOCKADE_TURN_TIMEOUT", SECRET),
        ("STOCKADE_ADMISSION", SECRET),
        ("STOCKADE_ADMISSION__TIMEOUT", SECRET),
        ("STOCKADE_PLUGINS", f'["{SECRET}'),
        ("STOCKADE_PLUGIN", SECRET),
        ("STOCKADE_PLUGIN__CLAUDE", SECRET),
        ("STOCKADE_ENV_PASS", f"API_KEY={SECRET}"),
        ("STOCKADE_HOME", "~nobody-of-this-name/x"),
    ],
)
def test_a_wrong_value_names_its_variable_and_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=variable) as caught:
        Settings.load()
    assert value not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.exit_code == 2


def test_a_wrong_value_names_the_key_of_the_file_or_the_argument() -> None:
    write("lease = 'long'")
    with pytest.raises(SettingsError, match=r"lease in stockade\.toml"):
        Settings.load()
    write("")
    with pytest.raises(SettingsError, match="argument ttl"):
        Settings.load(ttl=-1)


def test_all_wrong_values_are_told_at_once() -> None:
    write("lease = 'long'\nttl = 0")
    with pytest.raises(SettingsError, match=r"(?s)ttl.*lease"):
        Settings.load()


def test_options_of_plugins_are_not_in_a_repr() -> None:
    assert SECRET not in repr(Settings.load(plugin={"gateway": {"key": SECRET}}))


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings.load().ttl = 5.0
