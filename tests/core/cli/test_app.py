from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from stockade.cli import app
from stockade.errors import NotConfigured, SandboxInUse, StockadeError


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A command ``toy`` of the kernel, whose ``run`` the test sets."""
    module = ModuleType("stockade_toy_command")
    module.configure = lambda parser: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(app.COMMANDS, "toy", (module.__name__, "A toy"))
    return module


def raising(error: BaseException) -> Any:
    def run(_: object) -> int:
        raise error

    return run


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["--help"]) == 0
    out = capsys.readouterr().out
    for name in app.COMMANDS:
        assert f"\n  {name} " in out


@pytest.mark.parametrize("name", sorted(set(app.COMMANDS) - app.RAW))
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app.main(["help", name])
    assert ended.value.code == 0
    assert f"usage: stockade {name}" in capsys.readouterr().out


def test_without_a_command_the_help_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "commands:" in captured.err


def test_version_names_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    from stockade import __version__

    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"stockade {__version__} (Python ")


def test_an_unknown_command_names_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["sandboxs"]) == 2
    assert "Did you mean 'stockade sandbox" in capsys.readouterr().err


def test_an_option_before_the_command_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["--json", "run"]) == 2
    assert "--json" in capsys.readouterr().err


def test_the_exit_status_of_a_command_is_passed_on(command: Any) -> None:
    command.run = lambda args: 7
    assert app.main(["toy"]) == 7


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (SandboxInUse("busy", sandbox="b", hint="Wait."), "in_use", 1),
        (NotConfigured("no key", hint="Set one."), "not_configured", 2),
        (StockadeError("odd", hint="Look."), "error", 1),
    ],
)
def test_a_typed_failure_is_printed_with_code_and_hint(
    command: Any, capsys: pytest.CaptureFixture[str], error: StockadeError, code: str, status: int
) -> None:
    command.run = raising(error)
    assert app.main(["toy"]) == status
    captured = capsys.readouterr()
    assert captured.err == f"stockade: {code}: {error.message}\n  {error.hint}\n"
    assert captured.out == ""


def test_an_unforeseen_error_has_no_traceback(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command.run = raising(KeyError("x"))
    assert app.main(["toy"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "stockade: internal: KeyError" in err


def test_debugging_shows_the_traceback(
    command: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKADE_DEBUG", "1")
    command.run = raising(KeyError("x"))
    assert app.main(["toy"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_before_anything_started_is_130(command: Any) -> None:
    command.run = raising(KeyboardInterrupt())
    assert app.main(["toy"]) == 130


def test_an_error_that_quotes_an_agent_cannot_move_the_cursor(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command.run = raising(StockadeError("tail: \x1b[2J", hint="\x1b]0;x\x07"))
    app.main(["toy"])
    assert "\x1b" not in capsys.readouterr().err


def test_a_plugin_adds_a_command(make_plugin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    make_plugin(
        "greeter",
        """
        from stockade.hookspecs import hookimpl

        def configure(parser):
            parser.add_argument("--loud", action="store_true")

        def run(args):
            print("HELLO" if args.loud else "hello")
            return 3

        @hookimpl
        def register_commands(group):
            group.add("greet", "Say hello", configure, run)
        """,
    )
    assert app.main(["greet", "--loud"]) == 3
    assert capsys.readouterr().out == "HELLO\n"


def test_a_broken_plugin_breaks_no_command_of_the_kernel(make_plugin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    make_plugin("broken", "raise SystemExit(9)")
    assert app.main(["--help"]) == 0
    assert app.main(["--version"]) == 0
    assert "hooks broken" in capsys.readouterr().out
    assert app.main(["rum"]) == 2
    err = capsys.readouterr().err
    assert "Did you mean 'stockade run'?" in err
    assert "plugin_broken" in err


def test_a_full_disk_is_no_bug_of_ours(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command.run = raising(OSError(28, "No space left on device"))
    assert app.main(["toy"]) == 1
    assert capsys.readouterr().err.startswith("stockade: io: [Errno 28] No space left on device\n")
