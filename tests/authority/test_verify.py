"""A warrant is checked as a whole, every time; only the signature is remembered."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from stockade_authority import compact, verify
from stockade_authority.denylist import Denylist
from stockade_authority.errors import (
    KeysMissing,
    KeyUnknown,
    TokenEarly,
    TokenExpired,
    TokenForged,
    TokenMalformed,
    TokenMisdirected,
    TokenRevoked,
)
from stockade_authority.keys import FileSigner, Keyring
from stockade_authority.verify import Verifier, local

from .conftest import Issue

NAMES = "iss sub aud jti iat nbf exp session turn user tier engine models budget".split()
FINE = [("models", None), ("tier", 7), ("nbf", 7), ("session", ""), ("turn", ""), ("user", ""), ("engine", "")]


@pytest.mark.requirement("L32", "L45")
def test_a_warrant_says_whose_it_is_and_what_for(verifier: Verifier, issue: Issue, signer: FileSigner) -> None:
    warrant = verifier.verify(issue(pack="sha256:1"), audience="model", sandbox="sb-1")
    assert (warrant.sandbox, warrant.audience, warrant.session, warrant.turn) == ("sb-1", "model", "s", "t")
    assert (warrant.user, warrant.tier, warrant.engine, warrant.pack) == ("ann", 0, "claude", "sha256:1")
    assert (warrant.models, warrant.budget.requests, warrant.budget.input_tokens) == (("m",), 3, None)
    assert (warrant.id, warrant.issuer, warrant.key) == ("id-1", "stockade", signer.kid)
    assert warrant.expires - warrant.issued == 300


@pytest.mark.requirement("L45")
def test_a_warrant_is_for_one_sandbox_one_route_and_of_one_issuer(
    verifier: Verifier, keyring: Keyring, denylist: Denylist, issue: Issue
) -> None:
    value = issue()
    verifier.verify(value, audience="model", sandbox="sb-1")
    with pytest.raises(TokenMisdirected, match="sandbox"):
        verifier.verify(value, audience="model", sandbox="sb-2")
    with pytest.raises(TokenMisdirected, match="route"):
        verifier.verify(value, audience="data", sandbox="sb-1")
    with pytest.raises(TokenMisdirected, match="issuer"):
        Verifier(keyring, denylist, issuer="other").verify(value, audience="model")
    for wrong in (["model"], ["model", "data"]):
        with pytest.raises(TokenMalformed):
            verifier.verify(issue(aud=wrong), audience="model")


def test_a_warrant_has_its_time(keyring: Keyring, issue: Issue) -> None:
    now = [time.time()]
    verifier = Verifier(keyring, None, clock=lambda: now[0])
    value = issue()
    warrant = verifier.verify(value, audience="model")
    for moment, error in (
        (warrant.issued - verify.LEEWAY - 0.01, TokenEarly),
        (warrant.issued - verify.LEEWAY, None),
        (warrant.expires - 0.01, None),
        (warrant.expires, TokenExpired),
        (warrant.expires + 1e9, TokenExpired),
    ):
        now[0] = moment
        if error is None:
            verifier.verify(value, audience="model")
        else:
            with pytest.raises(error):
                verifier.verify(value, audience="model")
    now[0] = float(warrant.issued)
    with pytest.raises(TokenEarly):
        verifier.verify(issue(nbf=warrant.issued + 100), audience="model")
    with pytest.raises(TokenMalformed, match="lasts"):
        verifier.verify(issue(exp=warrant.issued + 10**6), audience="model")


@pytest.mark.parametrize("name", NAMES)
def test_no_member_may_be_missing(verifier: Verifier, issue: Issue, name: str) -> None:
    with pytest.raises(TokenMalformed):
        verifier.verify(issue(**{name: ...}), audience="model")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [True, -1, ["a", 1], {"a": 1}, "a\x1b[2J", "\ud800", None, 7, ""], ids=repr)
def test_a_member_of_another_type_is_never_taken_for_something(
    verifier: Verifier, issue: Issue, name: str, value: Any
) -> None:
    if (name, value) in FINE and value is not True:
        return
    with pytest.raises((TokenMalformed, TokenExpired)):
        verifier.verify(issue(**{name: value}), audience="model")


@pytest.mark.parametrize("budget", [{}, {"requests": 1}, {"requests": "1"}, {"requests": True}, {"requests": -1}, []])
def test_a_budget_has_every_limit(verifier: Verifier, issue: Issue, budget: Any) -> None:
    rest = {"input_tokens": None, "output_tokens": None, "cost_microdollars": None}
    with pytest.raises(TokenMalformed):
        verifier.verify(
            issue(budget=budget if budget in ({}, {"requests": 1}, []) else rest | budget), audience="model"
        )


def test_a_member_of_somebody_elses_is_passed_over(verifier: Verifier, issue: Issue) -> None:
    assert verifier.verify(issue(tenant="acme"), audience="model").sandbox == "sb-1"


def test_no_models_is_not_any_model(verifier: Verifier, issue: Issue) -> None:
    assert verifier.verify(issue(models=[]), audience="model").models == ()
    assert verifier.verify(issue(models=None), audience="model").models is None


@pytest.mark.requirement("F76")
def test_a_revoked_warrant_is_refused_though_it_was_checked_before(
    verifier: Verifier, denylist: Denylist, issue: Issue
) -> None:
    value, other = issue(), issue(jti="id-2")
    for each in (value, other):
        verifier.verify(each, audience="model")
    denylist.deny({"id-1": time.time() + 300}, "test")
    with pytest.raises(TokenRevoked):
        verifier.verify(value, audience="model")
    assert verifier.verify(other, audience="model").id == "id-2"


def test_the_signature_is_checked_once_and_everything_else_always(
    verifier: Verifier, keyring: Keyring, issue: Issue, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    unseal = compact.unseal
    monkeypatch.setattr(compact, "unseal", lambda *args: calls.append(1) or unseal(*args))
    value = issue()
    for _ in range(5):
        verifier.verify(value, audience="model", sandbox="sb-1")
    assert len(calls) == 1
    with pytest.raises(TokenMisdirected):
        verifier.verify(value, audience="model", sandbox="sb-2")
    keyring.rotate()
    keyring.retire(next(file.kid for file in keyring.files() if not file.signing))
    with pytest.raises(KeyUnknown):
        verifier.verify(value, audience="model", sandbox="sb-1")


def test_a_forgery_with_the_id_of_a_checked_warrant_is_not_taken_for_it(verifier: Verifier, issue: Issue) -> None:
    value = issue()
    verifier.verify(value, audience="model")
    head, _, signature = value.split(".")
    _, claims, _ = issue(user="mallory").split(".")
    with pytest.raises(TokenForged):
        verifier.verify(f"{head}.{claims}.{signature}", audience="model")


def test_what_is_remembered_is_bounded(verifier: Verifier, issue: Issue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "REMEMBERED", 3)
    for number in range(10):
        verifier.verify(issue(jti=f"id-{number}"), audience="model")
    assert len(verifier._checked) == 3


@pytest.mark.requirement("L47")
def test_a_verifier_makes_no_key(home: Path, issue: Issue, tmp_path: Path) -> None:
    value = issue()
    verifier = local(tmp_path / "another-home")
    with pytest.raises(KeysMissing):
        verifier.verify(value, audience="model")
    assert not (tmp_path / "another-home" / "keys").exists()
    verifier.close()
