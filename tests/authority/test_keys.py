"""The key files: private, replaced and never changed, one that signs, and nothing trusted without a key."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from joserfc.jwk import ECKey, RSAKey

from stockade.errors import UsageError
from stockade_authority import compact
from stockade_authority.errors import KeysMissing, KeysUnavailable, KeysUnsafe, KeyUnknown
from stockade_authority.keys import Keyring

TYP = "test+jwt"


def test_keys_are_private_to_the_user(keyring: Keyring) -> None:
    assert keyring.folder.stat().st_mode & 0o7777 == 0o700
    assert {path.stat().st_mode & 0o7777 for path in keyring.folder.iterdir()} == {0o600}
    [file] = keyring.folder.glob("*.pem")
    assert file.read_text().startswith("-----BEGIN PRIVATE KEY-----")


def test_a_key_is_named_by_its_thumbprint(keyring: Keyring) -> None:
    [key] = keyring.jwks()["keys"]
    required = json.dumps({name: key[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":"))
    digest = base64.urlsafe_b64encode(hashlib.sha256(required.encode()).digest()).rstrip(b"=").decode()
    assert key["kid"] == digest == keyring.signer().kid


def test_the_published_set_has_no_private_part(keyring: Keyring) -> None:
    keyring.generate("second")
    assert [set(key) for key in keyring.jwks()["keys"]] == [{"kty", "crv", "x", "y", "use", "alg", "kid"}] * 2


def test_a_rotation_signs_with_the_new_key_and_still_trusts_the_old(keyring: Keyring) -> None:
    before = compact.seal({"n": 1}, keyring.signer(), TYP)
    new = keyring.rotate()
    after = compact.seal({"n": 2}, keyring.signer(), TYP)
    assert compact.unseal(after, TYP, keyring) == ({"n": 2}, new)
    assert compact.unseal(before, TYP, keyring)[0] == {"n": 1}
    assert [file.signing for file in keyring.files()] == [False, True]


def test_a_key_can_be_published_before_it_signs(keyring: Keyring) -> None:
    old = keyring.signer().kid
    assert keyring.generate("next") == "next"
    assert keyring.signer().kid == old
    assert keyring.rotate("next") == "next"
    assert keyring.signer().kid == "next"


def test_what_a_retired_key_signed_is_worth_nothing_at_once(keyring: Keyring) -> None:
    other = Keyring(keyring.folder)  # of another process, which has read the keys already
    old = keyring.signer()
    value = compact.seal({"n": 1}, old, TYP)
    assert compact.unseal(value, TYP, other)
    keyring.rotate()
    keyring.retire(old.kid)
    with pytest.raises(KeyUnknown):
        compact.unseal(value, TYP, other)
    assert old.kid not in str(keyring.jwks())


def test_the_key_that_signs_cannot_be_retired(keyring: Keyring) -> None:
    with pytest.raises(UsageError, match="signs") as error:
        keyring.retire(keyring.signer().kid)
    assert "rotate" in error.value.hint


@pytest.mark.requirement("L58")
@pytest.mark.parametrize("kid", ["../x", "a/b", "a.b", "", "-x", "ä", "x" * 65, "a\nb"])
def test_a_name_that_could_be_a_path_makes_no_key(keyring: Keyring, kid: str) -> None:
    before = sorted(os.listdir(keyring.folder.parent))
    if kid:
        with pytest.raises(UsageError):
            keyring.generate(kid)
    for call in (keyring.retire, lambda kid: keyring.rotate(kid or "../x")):
        with pytest.raises(UsageError):
            call(kid)
    assert sorted(os.listdir(keyring.folder.parent)) == before


def test_no_key_is_overwritten(keyring: Keyring) -> None:
    with pytest.raises(UsageError, match="already"):
        keyring.generate(keyring.signer().kid)


@pytest.mark.requirement("L47")
def test_without_a_key_nothing_is_trusted(home: Path) -> None:
    with pytest.raises(KeysMissing) as error:
        Keyring(home / "keys").get("any")
    assert "stockade keys generate" in error.value.hint
    (home / "keys").mkdir(parents=True, mode=0o700)
    with pytest.raises(KeysMissing):
        Keyring(home / "keys").get("any")


@pytest.mark.requirement("L46")
def test_keys_that_cannot_be_read_are_another_matter_than_none(home: Path, keyring: Keyring) -> None:
    (keyring.folder / "broken.pem").write_text("-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n")
    (keyring.folder / "broken.pem").chmod(0o600)
    with pytest.raises(KeysUnavailable, match=r"broken\.pem") as error:
        keyring.signer()
    assert "nonsense" not in str(error.value)
    file = home / "a-file"
    file.touch(mode=0o600)
    with pytest.raises(KeysUnavailable):
        Keyring(file).get("any")


@pytest.mark.parametrize("name", [".", "KEY", "signing"])
def test_keys_that_others_can_open_are_refused_with_the_remedy(keyring: Keyring, name: str) -> None:
    path = keyring.folder / name.replace("KEY", f"{keyring.signer().kid}.pem")
    path.chmod(0o750 if path.is_dir() else 0o640)
    with pytest.raises(KeysUnsafe) as error:
        Keyring(keyring.folder).signer()
    assert error.value.hint == f"chmod {'700' if path.is_dir() else '600'} {path}"
    with pytest.raises(KeysUnsafe):
        Keyring(keyring.folder).get("any")


def test_a_link_is_no_key(keyring: Keyring, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.pem"
    elsewhere.write_bytes(ECKey.generate_key("P-256").as_pem(private=True))
    (keyring.folder / "linked.pem").symlink_to(elsewhere)
    with pytest.raises(KeysUnavailable):
        keyring.get("linked")


@pytest.mark.parametrize("key", [ECKey.generate_key("P-384"), RSAKey.generate_key(2048)], ids=["P-384", "RSA"])
def test_a_key_for_another_algorithm_is_refused(keyring: Keyring, key: ECKey) -> None:
    path = keyring.folder / "other.pem"
    path.write_bytes(key.as_pem(private=True))
    path.chmod(0o600)
    with pytest.raises(KeysUnavailable, match="P-256"):
        keyring.get("other")


def test_a_public_key_verifies_and_cannot_sign(keyring: Keyring) -> None:
    key = ECKey.generate_key("P-256")
    path = keyring.folder / "service.pem"
    path.write_bytes(key.as_pem(private=False))
    path.chmod(0o600)
    assert keyring.get("service").thumbprint() == key.thumbprint()
    with pytest.raises(UsageError):
        keyring.rotate("service")


def test_first_use_makes_one_key_however_many_ask(home: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        kids = set(pool.map(lambda _: Keyring(home / "keys").signer().kid, range(16)))
    assert len(kids) == len(list((home / "keys").glob("*.pem"))) == 1


@pytest.mark.slow
def test_first_use_makes_one_key_in_several_processes(home: Path) -> None:
    code = "import sys, pathlib\nfrom stockade_authority.keys import Keyring\n"
    code += "print(Keyring(pathlib.Path(sys.argv[1])).signer().kid)"
    command = [sys.executable, "-c", code, str(home / "keys")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    kids = {process.communicate(timeout=50)[0] for process in processes}
    assert len(kids) == len(list((home / "keys").glob("*.pem"))) == 1


def test_what_a_crash_left_of_a_key_is_no_key(home: Path) -> None:
    (home / "keys").mkdir(parents=True, mode=0o700)
    for name in ("half.new", "signing.new"):
        (home / "keys" / name).touch(mode=0o600)
    keyring = Keyring(home / "keys")
    assert keyring.signer().kid
    assert keyring.generate("half") == "half"
