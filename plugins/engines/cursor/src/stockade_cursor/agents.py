"""The SDK's client of a running bridge. Importing this module imports the SDK."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from cursor_sdk import (
    AgentBusyError,
    AgentOptions,
    AsyncAgent,
    AsyncClient,
    AsyncConnectTransport,
    AsyncRun,
    BridgeEndpoint,
    CursorSDKError,
    DefaultAsyncHttpxClient,
    LocalAgentOptions,
    LocalSendOptions,
    RunStreamEvent,
    SandboxOptions,
    SendOptions,
)

from stockade.errors import EngineFailed
from stockade_cursor import translate  # noqa: F401 - imported with the SDK, before the first turn needs it
from stockade_cursor.bridge import forget_token
from stockade_cursor.command import Launch


class _Transport(AsyncConnectTransport):
    """Closes the stream of a run: the SDK leaves one that was not read to its end to the garbage collector."""

    streams: tuple[Any, ...] = ()

    async def stream(self, service: str, method: str, message: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        opened = await super().stream(service, method, message)
        self.streams = (opened,)
        return opened

    async def aclose(self) -> None:
        for opened in self.streams:
            await opened.aclose()
        await self._client.aclose()


class Connection:
    """A client of one bridge. A request has no time limit here: a turn has one, and a busy agent may be quiet (F13)."""

    def __init__(self, greeting: Mapping[str, Any]) -> None:
        try:
            endpoint = BridgeEndpoint.from_discovery(greeting)
        except (CursorSDKError, OSError, ValueError, TypeError) as error:
            raise EngineFailed(f"Cursor's bridge greeted with what cannot be used: {error}") from error
        finally:
            forget_token(greeting)
        # No proxy of the environment stands between the engine and its own bridge.
        http = DefaultAsyncHttpxClient(trust_env=False)
        self._transport = _Transport(endpoint.url, endpoint.auth_token, timeout=None, http_client=http)
        # The flag says that the bridge is this user's own; without it the SDK cancels no run.
        self._client = AsyncClient(transport=self._transport, allow_api_key_env_fallback=True)  # type: ignore[arg-type]

    async def open(self, native: str, launch: Launch, key: str) -> AsyncAgent:
        """The stored agent ``native``, or a new one. Raises ``AgentNotFoundError``.

        An agent does not keep its model: without one of the turn's it is the first that the account offers.
        """
        model = launch.model
        if model is None:
            offered = await self._client.models.list(api_key=key)
            if not offered:
                raise EngineFailed("The Cursor account offers no model", hint="Name one with --model.")
            model = offered[0].id
        options = _options(launch, key, model)
        return await (self._client.agents.resume(native, options) if native else self._client.agents.create(options))

    async def send(self, agent: AsyncAgent, message: str) -> tuple[AsyncRun, bool]:
        """Start a run, and whether the agent was busy: then what runs is cancelled, and it is tried once more (L61).

        A local agent that is busy has no error of its own; whether it is, its list of runs tells.
        """
        try:
            return await agent.send(message), False
        except CursorSDKError as error:
            runs = await self._client.list_runs(agent.agent_id, runtime="local")
            active = [run for run in runs if run.status == "running"]
            if not active and not isinstance(error, AgentBusyError):
                raise
            for run in active:
                await run.cancel()
            # A run that a dead bridge left behind may resist: `force` ends it in the store.
            return await agent.send(message, SendOptions(local=LocalSendOptions(force=True))), True

    async def cancel(self, run: AsyncRun) -> None:
        """Cancel a run, and wait until the bridge has done it."""
        await self._client.cancel_run(run.id, agent_id=run.agent_id)

    async def finished(self, events: AsyncIterator[RunStreamEvent], limit: float) -> bool:
        """Whether the stream of a run ends by itself within ``limit`` seconds after its result."""
        with contextlib.suppress(TimeoutError, CursorSDKError):
            async with asyncio.timeout(limit):
                async for _ in events:
                    pass
                return True
        return False

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        await self._client.aclose()


def _options(launch: Launch, key: str, model: str) -> AgentOptions:
    permissions = launch.permissions
    return AgentOptions(
        model=model,
        api_key=key,
        local=LocalAgentOptions(
            cwd=launch.cwd,
            dirs=launch.dirs,
            # Nothing of the project's or the user's: no rules, hooks or MCP servers but the turn's.
            setting_sources=(),
            sandbox_options=SandboxOptions(enabled=permissions.policy is not None),
        ),
        mcp_servers=launch.servers,
        tools=permissions.tools,
        disallowed_tools=permissions.disallowed,
    )
