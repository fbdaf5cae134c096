"""Every hook is answered by a toy plugin; every wrong answer names its plugin."""

import asyncio
import sys
from pathlib import Path

import pytest

from stockade import hookspecs
from stockade.cli.group import CommandGroup
from stockade.errors import BootError, PluginAmbiguous, PluginBroken, PluginError, UsageError
from stockade.model.authority import Claims, Constraints, SandboxRequest
from stockade.plugins.hooks import Hooks, boot, load_hooks, new_manager
from stockade.plugins.selection import Selection
from stockade.settings import Settings
from tests.support.toys import Toys

REQUEST = SandboxRequest("s1", "key", "", "claude", "ann", "", "read-only", Path("/work"), 60.0)
CLAIMS = Claims("s1", "n1", "t1", "ann", "claude", 0, "model", 100.0, requests=10)

EVERYTHING = """
from stockade.contracts.authority import AdmissionPolicy
from stockade.contracts.lifecycle import Observer, Preparation
from stockade.contracts.route import Route
from stockade.model.authority import ClaimLimits, Constraints, Verdict

class Policy(AdmissionPolicy):
    name = "toy"
    async def review(self, request): return Verdict.allow()

class Watch(Observer):
    async def on_event(self, record): ...

class Prepare(Preparation):
    async def apply(self, workspace): (workspace / "ready").touch()

class Echo(Route):
    async def serve(self, stream, origin): ...

@hookimpl
def select_driver(request, available): return available[-1]
@hookimpl
def driver_constraints(request): return Constraints(max_ttl=30.0)
@hookimpl
def engine_environment(request): return {"TOY": request.user}
@hookimpl
def prepare_workspace(request): return Prepare()
@hookimpl
def admission_policies(settings): return [Policy()]
@hookimpl
def token_claims(request): return ClaimLimits(requests=3)
@hookimpl
def routes(settings): return {"echo": Echo()}
@hookimpl
def observers(settings): return [Watch()]
@hookimpl
def register_commands(group): group.add("toy", "Plays", lambda parser: None, lambda args: 0)
"""


def hooks(toys: Toys, **sources: str) -> Hooks:
    for name, source in sources.items():
        toys.hooks(name, source)
    return load_hooks(Selection())


def test_a_toy_answers_every_hook(toys: Toys, tmp_path: Path) -> None:
    toys.hooks("all", EVERYTHING)
    booted = boot(Settings.load())
    asked = booted.hooks
    assert asked.names() == ["all"]
    assert asked.select_driver(REQUEST, ["docker", "process"]) == "process"
    assert asked.driver_constraints(REQUEST) == Constraints(max_ttl=30.0)
    assert asked.engine_environment(REQUEST) == {"TOY": "ann"}
    (preparation,) = asked.prepare_workspace(REQUEST)
    asyncio.run(preparation.value.apply(tmp_path))
    assert (tmp_path / "ready").exists()
    assert [(policy.plugin, policy.value.name) for policy in booted.policies] == [("all", "toy")]
    assert asked.token_claims(CLAIMS).requests == 3
    assert booted.routes["echo"].plugin == "all"
    assert [type(observer.value).__name__ for observer in booted.observers] == ["Watch"]
    group = CommandGroup()
    asked.register_commands(group)
    assert list(group.commands) == ["toy"]


def test_the_toy_above_answers_all_hooks_that_there_are() -> None:
    known = {name for name, caller in vars(new_manager().hook).items() if caller.has_spec()}
    assert known == {line.split("(")[0][4:] for line in EVERYTHING.splitlines() if line.startswith("def ")}


def test_the_facade_has_a_method_for_every_hook() -> None:
    assert {name for spec in hookspecs.ALL for name in vars(spec) if not name.startswith("_")} <= set(dir(Hooks))


def test_without_plugins_every_hook_has_its_neutral_answer(toys: Toys) -> None:
    asked = hooks(toys)
    assert asked.select_driver(REQUEST, ["process"]) is None
    assert asked.driver_constraints(REQUEST) == Constraints()
    assert asked.engine_environment(REQUEST) == {}
    assert asked.prepare_workspace(REQUEST) == []
    assert asked.token_claims(CLAIMS) == CLAIMS


def test_a_plugin_without_an_opinion_changes_nothing(toys: Toys) -> None:
    source = "\n".join(
        f"@hookimpl\ndef {hook}: return None"
        for hook in ("select_driver(request)", "driver_constraints()", "engine_environment()", "token_claims()")
    )
    asked = hooks(toys, shy=source)
    assert asked.select_driver(REQUEST, ["process"]) is None
    assert asked.driver_constraints(REQUEST) == Constraints()
    assert asked.token_claims(CLAIMS) == CLAIMS


def test_the_first_answer_in_the_order_of_names_chooses_the_driver(toys: Toys) -> None:
    last = "@hookimpl(tryfirst=True)\ndef select_driver(request, available): return 'docker'"
    none = "@hookimpl\ndef select_driver(request, available): return None"
    first = "@hookimpl(trylast=True)\ndef select_driver(request, available): return 'process'"
    assert hooks(toys, z=last, a=none, m=first).select_driver(REQUEST, ["docker", "process"]) == "process"


def test_a_driver_that_does_not_exist_breaks_the_plugin_that_chose_it(toys: Toys) -> None:
    asked = hooks(toys, lost="@hookimpl\ndef select_driver(request, available): return 'moon'")
    with pytest.raises(PluginBroken, match=r"'lost'.*process.*'moon'"):
        asked.select_driver(REQUEST, ["process"])


def test_preparations_come_in_the_order_of_plugin_names(toys: Toys) -> None:
    source = """
        from stockade.contracts.lifecycle import Preparation
        class P(Preparation):
            async def apply(self, workspace): ...
        @hookimpl
        def prepare_workspace(request): return P()
    """
    asked = hooks(toys, b=source, c=source, a=source)
    assert [answer.plugin for answer in asked.prepare_workspace(REQUEST)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("hook", "call"),
    [
        ("select_driver(request)", lambda asked: asked.select_driver(REQUEST, ["process"])),
        ("driver_constraints(request)", lambda asked: asked.driver_constraints(REQUEST)),
        ("engine_environment(request)", lambda asked: asked.engine_environment(REQUEST)),
        ("prepare_workspace(request)", lambda asked: asked.prepare_workspace(REQUEST)),
        ("token_claims(request)", lambda asked: asked.token_claims(CLAIMS)),
        ("register_commands(group)", lambda asked: asked.register_commands(CommandGroup())),
        ("admission_policies(settings)", lambda asked: asked.admission_policies(Settings.load())),
        ("routes(settings)", lambda asked: asked.routes(Settings.load())),
        ("observers(settings)", lambda asked: asked.observers(Settings.load())),
    ],
)
@pytest.mark.parametrize("answer", ["later()", "5", "[later()]", "{'a': later()}"])
def test_a_coroutine_or_another_type_is_no_answer(toys: Toys, hook: str, call: object, answer: str) -> None:
    """A coroutine that nobody awaits would warn, and warnings are errors here: it is closed."""
    source = f"async def later(): ...\n@hookimpl\ndef {hook}: return {answer}"
    asked = hooks(toys, wrong=source)
    with pytest.raises(PluginBroken, match="'wrong'") as caught:
        call(asked)  # type: ignore[operator]
    assert caught.value.plugin == "wrong"


@pytest.mark.parametrize(
    "limits",
    ["max_ttl=float('nan')", "max_ttl=0", "max_ttl=True", "file_access='all'", "provider_keys='no'", "min_tier=True"],
)
def test_constraints_that_cannot_be_compared_are_broken(toys: Toys, limits: str) -> None:
    """With a NaN, ``min`` would silently drop the limit."""
    asked = hooks(
        toys,
        odd="from stockade.model.authority import Constraints\n"
        f"@hookimpl\ndef driver_constraints(): return Constraints({limits})",
    )
    with pytest.raises(PluginBroken):
        asked.driver_constraints(REQUEST)


@pytest.mark.parametrize("limits", ["expires=float('nan')", "requests=-1", "models='opus'", "models=['opus']"])
def test_claim_limits_that_cannot_be_compared_are_broken(toys: Toys, limits: str) -> None:
    asked = hooks(
        toys,
        odd="from stockade.model.authority import ClaimLimits\n"
        f"@hookimpl\ndef token_claims(request): return ClaimLimits({limits})",
    )
    with pytest.raises(PluginBroken):
        asked.token_claims(CLAIMS)


@pytest.mark.parametrize("raised", ["ValueError('no')", "SystemExit(1)", "AssertionError('no')"])
def test_a_hook_that_raises_names_its_plugin_and_chains_the_cause(toys: Toys, raised: str) -> None:
    asked = hooks(toys, bad=f"@hookimpl\ndef driver_constraints(request): raise {raised}")
    with pytest.raises(PluginBroken, match="'bad': hook driver_constraints failed") as caught:
        asked.driver_constraints(REQUEST)
    assert caught.value.__cause__ is not None


def test_an_async_hook_refuses_the_boot_and_shows_its_signature(toys: Toys) -> None:
    with pytest.raises(BootError, match=r"select_driver\(request\) is async"):
        hooks(toys, late="@hookimpl\nasync def select_driver(request): ...")


@pytest.mark.parametrize("kind", ["wrapper", "hookwrapper"])
def test_a_hook_wrapper_is_refused_because_it_could_turn_a_deny_around(toys: Toys, kind: str) -> None:
    with pytest.raises(BootError, match="hook wrapper"):
        hooks(toys, w=f"@hookimpl({kind}=True)\ndef admission_policies(settings):\n    yield")


def test_an_unknown_hook_is_broken_and_shows_its_signature(toys: Toys) -> None:
    with pytest.raises(
        BootError, match=r"no hook for admision_policies\(settings\) \(did you mean admission_policies\?"
    ):
        hooks(toys, typo="@hookimpl\ndef admision_policies(settings): ...")


def test_an_unknown_argument_is_broken_and_shows_its_signature(toys: Toys) -> None:
    with pytest.raises(BootError, match=r"routes\(config\)"):
        hooks(toys, typo="@hookimpl\ndef routes(config): ...")


def test_all_failures_of_a_boot_are_in_one_error_that_says_how_to_disable_each(toys: Toys) -> None:
    toys.hooks("a", "raise RuntimeError('at import')")
    toys.hooks("b", "@hookimpl\ndef nonsense(): ...")
    toys.hooks("c", "@hookimpl\ndef routes(settings): raise OSError('in use')\n@hookimpl\ndef observers(): return 1")
    toys.hooks("d", "@hookimpl\ndef routes(settings): raise OSError('in use too')")
    with pytest.raises(BootError) as caught:
        boot(Settings.load())
    assert [failure.plugin for failure in caught.value.failures] == ["a", "b", "c", "c", "d"]
    for failure in caught.value.failures:
        assert "STOCKADE_PLUGINS_DISABLED" in failure.hint
        assert failure.message in str(caught.value)


def test_disabling_what_is_broken_boots_the_rest_without_importing_it(toys: Toys) -> None:
    toys.hooks("bad", "raise RuntimeError")
    toys.hooks("good", EVERYTHING)
    booted = boot(Settings.load(plugins_disabled=["bad"]))
    assert booted.hooks.names() == ["good"]
    assert "toy_bad" not in sys.modules


def test_two_routes_of_one_name_refuse_the_boot(toys: Toys) -> None:
    toys.hooks("one", EVERYTHING)
    toys.hooks("two", EVERYTHING)
    with pytest.raises(BootError) as caught:
        boot(Settings.load())
    (failure,) = caught.value.failures
    assert isinstance(failure, PluginAmbiguous)
    assert "'echo'" in failure.message
    assert "'one'" in failure.message
    assert "'two'" in failure.message


def test_two_distributions_with_one_hook_module_name_refuse_the_boot(toys: Toys) -> None:
    for dist in ("toy-p", "toy-q"):
        toys.dist(dist, {"stockade.plugins": {"same": "toy_same"}}, modules={"toy_same": "raise SystemExit"})
    with pytest.raises(BootError) as caught:
        boot(Settings.load())
    assert isinstance(caught.value.failures[0], PluginAmbiguous)
    assert "toy_same" not in sys.modules


def test_environments_that_disagree_name_both_plugins_and_no_value(toys: Toys) -> None:
    template = "@hookimpl\ndef engine_environment(request): return {'REGION': '%s', 'SAME': '1'}"
    asked = hooks(toys, east=template % "east-secret", west=template % "west-secret")
    with pytest.raises(PluginError, match=r"'east' and 'west'.*REGION") as caught:
        asked.engine_environment(REQUEST)
    assert "secret" not in str(caught.value)


def test_a_hook_with_default_arguments_gets_the_real_ones(toys: Toys) -> None:
    asked = hooks(toys, d="@hookimpl\ndef select_driver(request, available=('x',)): return available[0]")
    assert asked.select_driver(REQUEST, ["process"]) == "process"


def test_two_commands_of_one_name_name_the_second_plugin(toys: Toys) -> None:
    source = "@hookimpl\ndef register_commands(group): group.add('x', 'X', print, print)"
    with pytest.raises(PluginBroken, match=r"'b'.*added twice"):
        hooks(toys, a=source, b=source).register_commands(CommandGroup())


def test_settings_that_a_plugin_cannot_serve_are_the_users_error_not_the_plugins(toys: Toys) -> None:
    toys.hooks(
        "choosy",
        """
        from stockade.errors import UsageError

        @hookimpl
        def routes(settings):
            raise UsageError("there is no script 'helo'", hint="One of: hello")
        """,
    )
    with pytest.raises(UsageError, match="no script 'helo'"):
        boot(Settings.load())
