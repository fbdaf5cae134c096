"""Boots the hook modules, and calls hooks with types and with the plugin's name on every failure.

The only import of pluggy. Each plugin is asked by itself, in the order of names, so that the order of
installation never matters and a failure is known by its plugin. Hook wrappers are refused: they
could turn another plugin's answer around.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pluggy

from stockade import hookspecs
from stockade.contracts.authority import AdmissionPolicy
from stockade.contracts.lifecycle import Observer, Preparation
from stockade.contracts.route import Route
from stockade.errors import BootError, PluginAmbiguous, PluginBroken, PluginError, StockadeError, UsageError
from stockade.model.authority import Claims, Constraints, SandboxRequest
from stockade.plugins.answers import (
    Answer,
    expect,
    expect_all,
    expect_constraints,
    expect_limits,
    expect_table,
    wrong,
)
from stockade.plugins.discovery import LoadedPlugin, load_entry, only
from stockade.plugins.scan import EntryPoint, of_kind
from stockade.plugins.selection import Selection
from stockade.runtime import narrowing

if TYPE_CHECKING:
    from stockade.cli.group import CommandGroup
    from stockade.settings import Settings

T = TypeVar("T")


class Hooks:
    """The hooks of all enabled plugins. Every method raises `PluginBroken` with the plugin's name.

    A `UsageError` of a hook passes unchanged: settings or a request that the plugin cannot serve.
    """

    def __init__(self, plugins: pluggy.PluginManager, only: str = "") -> None:
        self._plugins = plugins
        self._only = only

    def names(self) -> list[str]:
        """The hook modules that are loaded, sorted."""
        return sorted(name for name, plugin in self._plugins.list_name_plugin() if plugin is not None)

    def each(self) -> list[Hooks]:
        """The hooks of each plugin by itself, so that one failure does not hide the next plugin's."""
        return [Hooks(self._plugins, name) for name in self.names()]

    def select_driver(self, request: SandboxRequest, available: Sequence[str]) -> str | None:
        """The first answer in the order of plugin names; ``None`` without one."""
        for plugin, value in self._ask("select_driver", request=request, available=tuple(available)):
            name = expect(plugin, "select_driver", value, str)
            if name not in available:
                raise wrong(plugin, "select_driver", value, f"name of {', '.join(available) or 'nothing'}: {name!r}")
            return name
        return None

    def driver_constraints(self, request: SandboxRequest) -> Constraints:
        """The narrowest of each limit."""
        answers = self._ask("driver_constraints", request=request)
        return narrowing.constraints([expect_constraints(plugin, value) for plugin, value in answers])

    def engine_environment(self, request: SandboxRequest) -> dict[str, str]:
        """All variables; two plugins that disagree, a provider's key or a name of the kernel's raise `PluginError`."""
        answers = self._ask("engine_environment", request=request)
        return narrowing.environment(
            [Answer(plugin, expect_table(plugin, "engine_environment", value, str)) for plugin, value in answers]
        )

    def prepare_workspace(self, request: SandboxRequest) -> list[Answer[Preparation]]:
        """What to apply to the workspace, in this order."""
        answers = self._ask("prepare_workspace", request=request)
        return [Answer(plugin, expect(plugin, "prepare_workspace", value, Preparation)) for plugin, value in answers]  # type: ignore[type-abstract]

    def admission_policies(self, settings: Settings) -> list[Answer[AdmissionPolicy]]:
        """Everybody to be asked for a sandbox. At boot only; see `Boot.policies`."""
        return self._objects("admission_policies", settings, AdmissionPolicy)  # type: ignore[type-abstract]

    def observers(self, settings: Settings) -> list[Answer[Observer]]:
        """Everybody who watches. At boot only; see `Boot.observers`."""
        return self._objects("observers", settings, Observer)  # type: ignore[type-abstract]

    def routes(self, settings: Settings) -> list[Answer[dict[str, Route]]]:
        """Routes by name, as each plugin answers. At boot only; see `Boot.routes`."""
        answers = self._ask("routes", settings=settings)
        return [Answer(plugin, expect_table(plugin, "routes", value, Route)) for plugin, value in answers]  # type: ignore[type-abstract]

    def token_claims(self, claims: Claims) -> Claims:
        """``claims``, narrowed by everybody."""
        limits = [expect_limits(plugin, value) for plugin, value in self._ask("token_claims", request=claims)]
        return narrowing.claims(claims, limits)

    def register_commands(self, group: CommandGroup) -> None:
        """Let every plugin add its commands."""
        for plugin, value in self._ask("register_commands", group=group):
            raise wrong(plugin, "register_commands", value, "None")

    def _objects(self, hook: str, settings: Settings, kind: type[T]) -> list[Answer[T]]:
        return [
            Answer(plugin, item)
            for plugin, value in self._ask(hook, settings=settings)
            for item in expect_all(plugin, hook, value, kind)
        ]

    def _ask(self, hook: str, **arguments: object) -> Iterator[tuple[str, object]]:
        """Each plugin's answers that are not ``None``, in the order of names."""
        everybody = dict(self._plugins.list_name_plugin())
        for name in [self._only] if self._only else self.names():
            others = [plugin for other, plugin in everybody.items() if other != name]
            caller = self._plugins.subset_hook_caller(hook, others)
            try:
                result = caller(**arguments)
            except (KeyboardInterrupt, UsageError):
                raise  # what the user asked for or configured is wrong, not the plugin
            except BaseException as error:  # the hook is synchronous: nobody's cancellation arrives here
                message = error.message if isinstance(error, StockadeError) else f"{type(error).__name__}: {error}"
                raise PluginBroken(
                    f"plugin {name!r}: hook {hook} failed: {message}",
                    plugin=name,
                    hint=error.hint if isinstance(error, StockadeError) else "",
                ) from error
            first = caller.spec is not None and caller.spec.opts.get("firstresult")
            for value in [result] if first else result:
                if value is not None:
                    yield name, value


@dataclass(frozen=True, slots=True)
class Boot:
    """All hook modules, and what those hooks answered that are called once."""

    hooks: Hooks
    policies: tuple[Answer[AdmissionPolicy], ...]
    routes: Mapping[str, Answer[Route]]
    observers: tuple[Answer[Observer], ...]


def boot(settings: Settings) -> Boot:
    """Load every enabled hook module and call the hooks with ``settings``.

    Raises one `BootError` with all failures; each names its plugin and the setting that disables it.
    """
    hooks, failures = _load(settings.selection)
    policies: list[Answer[AdmissionPolicy]] = []
    routes: list[Answer[dict[str, Route]]] = []
    observers: list[Answer[Observer]] = []
    for one in hooks.each():
        _collect(failures, policies, one.admission_policies, settings)
        _collect(failures, routes, one.routes, settings)
        _collect(failures, observers, one.observers, settings)
    by_name = _distinct(routes, failures)
    _refuse(failures)
    return Boot(hooks, tuple(policies), by_name, tuple(observers))


def load_hooks(selection: Selection) -> Hooks:
    """Load every enabled hook module and call nothing; for commands. Raises `BootError`."""
    hooks, failures = _load(selection)
    _refuse(failures)
    return hooks


def _load(selection: Selection) -> tuple[Hooks, list[PluginError]]:
    manager, failures = new_manager(), list[PluginError]()
    entries: dict[str, list[EntryPoint]] = {}
    for entry in of_kind("hooks"):
        if selection.enabled(entry):
            entries.setdefault(entry.name, []).append(entry)
    for same in entries.values():
        try:
            only(same)
            register(manager, load_entry(same[0]))
        except PluginError as error:
            failures.append(error)
    return Hooks(manager), failures


def new_manager() -> pluggy.PluginManager:
    """pluggy with all our hook specs and no plugin."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    for spec in hookspecs.ALL:
        manager.add_hookspecs(spec)
    return manager


def implemented(manager: pluggy.PluginManager) -> list[str]:
    """The hooks that somebody answers, sorted."""
    return sorted(name for name, caller in vars(manager.hook).items() if caller.get_hookimpls())


def register(manager: pluggy.PluginManager, loaded: LoadedPlugin) -> None:
    """Check a hook module against the hook specs, and add it. Raises `PluginBroken`."""
    name, module = loaded.entry.name, loaded.obj
    problems = [problem for attribute in dir(module) for problem in _problems(manager, module, attribute)]
    if not problems:
        try:
            manager.register(module, name)
        except (pluggy.PluginValidationError, ValueError) as error:
            raise PluginBroken(f"hook module {loaded.entry}: {error}", plugin=name, hint=_SIGNATURES) from error
    else:
        raise PluginBroken(f"hook module {loaded.entry}: {'; '.join(problems)}", plugin=name, hint=_SIGNATURES)


_SIGNATURES = "See stockade.hookspecs for the hooks and their arguments."


def _problems(manager: pluggy.PluginManager, module: object, attribute: str) -> Iterator[str]:
    options = manager.parse_hookimpl_opts(module, attribute)
    if options is None:
        return
    function = getattr(module, attribute)
    hook = options.get("specname") or attribute
    shown = f"{attribute}{inspect.signature(function)}"
    caller = getattr(manager.hook, hook, None)
    if caller is None or not caller.has_spec():
        if not options.get("optionalhook"):
            close = difflib.get_close_matches(hook, vars(manager.hook), n=1)
            yield f"there is no hook for {shown}" + (f" (did you mean {close[0]}?)" if close else "")
    elif options.get("wrapper") or options.get("hookwrapper"):
        yield f"{shown} is a hook wrapper; plugins may not see each other's answers"
    elif inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        yield f"{shown} is async; hooks are synchronous and return objects with async methods"


def _collect(
    failures: list[PluginError], answers: list[T], ask: Callable[[Settings], list[T]], settings: Settings
) -> None:
    try:
        answers += ask(settings)
    except PluginError as error:
        failures.append(error)


def _distinct(answers: Sequence[Answer[dict[str, Route]]], failures: list[PluginError]) -> dict[str, Answer[Route]]:
    found: dict[str, Answer[Route]] = {}
    for answer in answers:
        for name, route in answer.value.items():
            other = found.setdefault(name, Answer(answer.plugin, route))
            if other.value is not route:
                failures.append(
                    PluginAmbiguous(
                        f"route {name!r} is served by plugin {other.plugin!r} and by plugin {answer.plugin!r}",
                        plugin=answer.plugin,
                        hint=f"Name one of them in STOCKADE_PLUGINS_DISABLED: {other.plugin} or {answer.plugin}",
                    )
                )
    return found


def _refuse(failures: list[PluginError]) -> None:
    for failure in failures:
        if "STOCKADE_PLUGINS_DISABLED" not in failure.hint:
            advice = f"To go on without it: STOCKADE_PLUGINS_DISABLED={failure.plugin} (setting plugins_disabled)."
            failure.hint = f"{failure.hint} {advice}".strip()
    if failures:
        raise BootError(failures)
