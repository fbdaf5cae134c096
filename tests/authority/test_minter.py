"""The minter: what every minter owes, and what is its own."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stockade.errors import SettingsError
from stockade.model.authority import Claims
from stockade.testing import MinterContract
from stockade.testing.examples import example_claims
from stockade.testing.minter import Verify
from stockade_authority import minter as module
from stockade_authority.denylist import Denylist
from stockade_authority.errors import KeysUnsafe, TokenMisdirected, TokenRefused, TokenRevoked
from stockade_authority.keys import Keyring
from stockade_authority.minter import WarrantMinter
from stockade_authority.signing import Signer
from stockade_authority.verify import Verifier, Warrant, local


@pytest_asyncio.fixture
async def minter(home: Path) -> AsyncIterator[WarrantMinter]:
    """The minter of a kernel."""
    minter = WarrantMinter({"home": home})
    yield minter
    await minter.aclose()


def claims_of(warrant: Warrant) -> Claims:
    return Claims(
        sandbox=warrant.sandbox,
        session=warrant.session,
        turn=warrant.turn,
        user=warrant.user,
        engine=warrant.engine,
        tier=warrant.tier,
        audience=warrant.audience,
        expires=warrant.expires,
        models=warrant.models,
        requests=warrant.budget.requests,
        input_tokens=warrant.budget.input_tokens,
        output_tokens=warrant.budget.output_tokens,
        cost_microdollars=warrant.budget.cost_microdollars,
        pack=warrant.pack,
    )


class TestWarrants(MinterContract):
    @pytest_asyncio.fixture
    async def minter(self, home: Path) -> AsyncIterator[WarrantMinter]:
        minter = WarrantMinter({"home": home})
        yield minter
        await minter.aclose()

    @pytest.fixture
    def verify(self, home: Path, denylist: Denylist) -> Verify:
        async def verify(value: str, now: float) -> Claims | None:
            verifier = Verifier(Keyring(home / "keys"), denylist, clock=lambda: now)
            try:
                return claims_of(verifier.verify(value, audience="model"))
            except TokenRefused:
                return None

        return verify

    @pytest.fixture
    def elsewhere(self, verify: Verify) -> Verify:
        return verify  # it shares nothing with the minter but the state root


@pytest.mark.requirement("L45")
async def test_a_warrant_is_short_lived_and_never_outlives_its_turn(home: Path) -> None:
    minter = WarrantMinter({"home": home, "lifetime": 60})
    for allowed in (10, 60, 3600):
        now = time.time()
        token = await minter.mint(example_claims(expires=now + allowed))
        assert token.expires <= now + allowed
        assert now + min(allowed, 60) - 1 <= token.expires <= time.time() + 60
    await minter.aclose()


async def test_a_limit_larger_than_any_number_in_json_is_the_largest(minter: WarrantMinter, home: Path) -> None:
    token = await minter.mint(example_claims(requests=10**30))
    verifier = local(home)
    assert verifier.verify(token.value, audience="model").budget.requests == 2**53 - 1
    verifier.close()


async def test_the_issuer_is_a_setting(home: Path) -> None:
    minter = WarrantMinter({"home": home, "issuer": "team-a"})
    token = await minter.mint(example_claims())
    ours, others = local(home, issuer="team-a"), local(home)
    assert ours.verify(token.value, audience="model").issuer == "team-a"
    with pytest.raises(TokenMisdirected):
        others.verify(token.value, audience="model")
    for verifier in (ours, others):
        verifier.close()
    await minter.aclose()


async def test_a_rotation_is_seen_by_the_next_turn(minter: WarrantMinter, home: Path) -> None:
    before = await minter.mint(example_claims())
    new = Keyring(home / "keys").rotate()
    after = await minter.mint(example_claims())
    verifier = local(home)
    assert verifier.verify(before.value, audience="model").key != new
    assert verifier.verify(after.value, audience="model").key == new
    verifier.close()


async def test_keys_that_are_not_safe_mint_nothing(minter: WarrantMinter, home: Path) -> None:
    await minter.mint(example_claims())
    (home / "keys").chmod(0o755)
    with pytest.raises(KeysUnsafe):
        await minter.mint(example_claims())


async def test_a_token_of_an_earlier_kernel_can_be_revoked(minter: WarrantMinter, home: Path) -> None:
    token = await minter.mint(example_claims())
    later = WarrantMinter({"home": home})
    await later.revoke([token.id], "cleaning up")
    verifier = local(home)
    with pytest.raises(TokenRevoked):
        verifier.verify(token.value, audience="model")
    verifier.close()
    await later.aclose()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lifetime": 0}, "lifetime"),
        ({"lifetime": 10**6}, "lifetime"),
        ({"lifetime": "canary"}, "lifetime"),
        ({"issuer": ""}, "issuer"),
        ({"lifetme": 3}, "plugin.warrant.lifetme"),
    ],
)
def test_a_wrong_setting_is_named_and_not_shown(home: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as error:
        WarrantMinter({"home": home, **options})
    assert "canary" not in str(error.value)


@pytest.mark.slow
def test_constructing_it_imports_no_cryptography_in_the_way_and_makes_no_key(home: Path) -> None:
    code = (
        "import sys, threading\n"
        "class Still(threading.Thread):\n    def start(self): pass\n"
        "threading.Thread = Still\n"
        "from pathlib import Path\nfrom stockade_authority.minter import WarrantMinter\n"
        f"import stockade_authority.verify, stockade_authority.plugin\nWarrantMinter({{'home': Path({str(home)!r})}})\n"
        "print(*[m for m in ('cryptography', 'joserfc') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    assert not home.exists()


class Service(Signer):
    """A key that lives elsewhere."""

    ring: Keyring

    @property
    def kid(self) -> str:
        return "service"

    def sign(self, data: bytes) -> bytes:
        assert self.options["address"] == "kms://1"
        return type(self).ring.signer().sign(data)


class EntryPoint:
    name = "acme"

    def __init__(self, made: object) -> None:
        self.load = lambda: made


async def test_a_key_service_can_sign(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Service.ring = Keyring(tmp_path / "service")
    Service.ring.generate("service")
    keys = home / "keys"
    keys.mkdir(parents=True, mode=0o700)
    (keys / "service.pem").write_bytes(Service.ring.get("service").as_pem(private=False))
    (keys / "service.pem").chmod(0o600)
    monkeypatch.setattr(module.metadata, "entry_points", lambda group: [EntryPoint(Service)])
    minter = WarrantMinter({"home": home, "signer": "acme", "address": "kms://1"})
    token = await minter.mint(example_claims())
    verifier = local(home)
    assert verifier.verify(token.value, audience="model").key == "service"
    assert [path.name for path in keys.glob("*.pem")] == ["service.pem"], "no key of our own is made beside it"
    verifier.close()
    await minter.aclose()


@pytest.mark.parametrize("made", [None, object, dict])
async def test_a_signer_that_is_none_is_refused_by_name(
    home: Path, monkeypatch: pytest.MonkeyPatch, made: object
) -> None:
    monkeypatch.setattr(module.metadata, "entry_points", lambda group: [EntryPoint(made)] if made else [])
    minter = WarrantMinter({"home": home, "signer": "acme"})
    with pytest.raises(SettingsError, match="'acme'") as error:
        await minter.mint(example_claims())
    assert "stockade.signers" in error.value.hint
    await minter.aclose()


async def test_many_turns_at_once_share_the_key(minter: WarrantMinter) -> None:
    tokens = await asyncio.gather(*(minter.mint(example_claims()) for _ in range(50)))
    heads = {json.loads(base64.urlsafe_b64decode(t.value.split(".")[0] + "==="))["kid"] for t in tokens}
    assert len(heads) == 1
