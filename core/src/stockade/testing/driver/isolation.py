"""The attestation: what it says is so."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from stockade.errors import RevocationUnsupported
from stockade.model.isolation import Isolation
from stockade.testing.bounds import bounded
from stockade.testing.driver import evidence, processes
from stockade.testing.driver.base import DriverKit, Make
from stockade.testing.driver.box import Box

STATED = ("host", "none")
"""Words of `Isolation` that state a weakness: tier 1 may have some, tier 2 has none."""

PLACES = (
    "/",
    "/bin",
    "/etc",
    "/home",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/tmp",
    "/usr",
    "/usr/local",
    "/var",
    "/var/tmp",
)
"""Where a contained sandbox writes into memory at most."""

KEY = "ANTHROPIC_API_KEY"


class IsolationTests(DriverKit):
    """`Sandbox.isolation`, and `Sandbox.revoke`."""

    @bounded
    async def test_the_isolation_is_stated(self, make: Make) -> None:
        """A tier, and a word a person can read for each aspect (L81)."""
        isolation = (await make()).sandbox.isolation
        assert isinstance(isolation, Isolation)
        assert isolation.tier in (0, 1, 2)
        words = dataclasses.asdict(isolation)
        for name in ("processes", "filesystem", "network", "user", "resources"):
            assert isinstance(words[name], str) and 0 < len(words[name]) <= 60, f"{name} is {words[name]!r}"

    @bounded
    async def test_the_tier_inside_is_the_attested_one(self, make: Make) -> None:
        """An engine relaxes its own sandbox by it; no variable of a caller may change it (L37, L38)."""
        box = await make(extra={"STOCKADE_TIER": "1"})
        assert await box.sh("echo $STOCKADE_TIER") == str(box.sandbox.isolation.tier)

    @bounded
    async def test_the_tier_is_not_overstated(self, make: Make, tmp_path: Path) -> None:
        """From tier 1 on, a look from inside: the host's processes, its network, its files, and places to write.

        At tier 1 an aspect may be open when its word says so (`STATED`), but not all of them.
        """
        box = await make()
        isolation = box.sandbox.isolation
        if isolation.tier == 0:
            pytest.skip("not attested: Isolation.tier is 0, which claims no boundary")
        found = {
            "processes": await _processes(box),
            "network": await _network(box),
            "filesystem": await _files(box, tmp_path),
        }
        stated = {name for name in found if getattr(isolation, name) in STATED}
        assert len(stated) < len(found), "tier 1 is attested, and nothing is contained"
        assert not stated or isolation.tier == 1, f"tier 2 is attested, and {stated} are open"
        assert {name: open_ for name, open_ in found.items() if open_ and name not in stated} == {}

    @bounded
    async def test_nested_is_attested_truly(self, make: Make) -> None:
        """Whether an agent's own sandbox can start in it, found out by making one (L41, F42)."""
        box = await make()
        assert box.sandbox.isolation.nested == await box.python(evidence.NESTED)

    @bounded
    async def test_a_provider_key_is_attested(self, make: Make) -> None:
        """By its name; and none where there is none (L44, L80, L81)."""
        assert (await make()).sandbox.isolation.provider_key == ()
        box = await make(extra={KEY: "key-of-the-kit"}, provider_keys=(KEY,))
        assert tuple(box.sandbox.isolation.provider_key) == (KEY,)
        assert await box.sh(f"echo ${KEY}") == "key-of-the-kit"

    @bounded
    async def test_a_route_is_revoked_or_that_is_refused(self, make: Make) -> None:
        """`RevocationUnsupported` is the one honest refusal (L39); either way the sandbox goes on."""
        box = await make()
        answers = []
        for _ in range(2):
            try:
                await box.sandbox.revoke("model")
                answers.append("revoked")
            except RevocationUnsupported:
                answers.append("refused")
        assert answers[0] == answers[1]
        assert await box.sh("echo alive") == "alive"


async def _processes(box: Box) -> list[str]:
    mark = box.mark()
    with processes.bystander(mark) as process:
        seen = await box.python(evidence.PROCESSES, mark, str(process.pid))
        found = [f"a process of the host is seen, as {seen}"] if seen else []
        if process.poll() is not None:
            found.append("a process of the host was killed")
    return found


async def _network(box: Box) -> list[str]:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        return list(await box.python(evidence.NETWORK, str(server.sockets[0].getsockname()[1])))


async def _files(box: Box, folder: Path) -> list[str]:
    secret = folder / "kit-secret"
    secret.write_text("secret-of-the-host")
    found = list(await box.python(evidence.FILES, str(secret), str(folder), *PLACES))
    if (folder / "kit-written").exists():
        found.append("a file of the sandbox is on the host")
    return found
