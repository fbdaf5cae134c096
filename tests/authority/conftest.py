"""A state root with a key, what signs with it, and what checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stockade.model.authority import Claims
from stockade_authority import compact, warrants
from stockade_authority.denylist import Denylist
from stockade_authority.keys import FileSigner, Keyring
from stockade_authority.verify import Verifier

Issue = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state root, not yet made."""
    return tmp_path / "home"


@pytest.fixture
def keyring(home: Path) -> Keyring:
    """Its keys: one."""
    keyring = Keyring(home / "keys")
    keyring.generate()
    return keyring


@pytest.fixture
def signer(keyring: Keyring) -> FileSigner:
    """What signs with that key."""
    return keyring.signer()


@pytest.fixture
def denylist(home: Path) -> Iterator[Denylist]:
    """Its list of revoked tokens."""
    denylist = Denylist(home)
    yield denylist
    denylist.close()


@pytest.fixture
def verifier(keyring: Keyring, denylist: Denylist) -> Verifier:
    """What a gateway has."""
    return Verifier(keyring, denylist)


@pytest.fixture
def members() -> dict[str, object]:
    """The members of a warrant that is good now, for a route ``model`` and a sandbox ``sb-1``."""
    claims = Claims("sb-1", "s", "t", "ann", "claude", 0, "model", time.time() + 600, models=("m",), requests=3)
    return warrants.write(claims, id="id-1", issuer="stockade", now=time.time(), lifetime=300)


@pytest.fixture
def issue(signer: FileSigner, members: dict[str, object]) -> Issue:
    """Signs those members, changed; a member that is ``...`` is left out."""

    def issue(**changes: object) -> str:
        changed = {name: value for name, value in (members | changes).items() if value is not ...}
        return compact.seal(changed, signer, warrants.TYP)

    return issue
