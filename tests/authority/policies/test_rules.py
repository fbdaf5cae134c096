"""What rules match, what follows from them, and what a file of them may say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stockade.errors import SettingsError
from stockade.model.authority import TurnRequest, Verdict
from stockade.model.isolation import Isolation
from stockade.testing import PolicyContract
from stockade.testing.examples import Requests, example_request
from stockade_authority.policies import hours, rulefile
from stockade_authority.policies.rulefile import read
from stockade_authority.policies.ruling import RulesPolicy
from tests.support import docs

MONDAY_NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC).timestamp()


def isolation(tier: Any, image: str = "") -> Isolation:
    return Isolation(tier, "-", "-", "-", "-", "-", False, image=image)


class Ruled:
    """A policy from the text of a file."""

    def __init__(self, folder: Path, text: str, now: float = MONDAY_NOON) -> None:
        path = folder / "rules.toml"
        path.write_text(text)
        self.policy = RulesPolicy(read(path), lambda: now)

    async def review(self, **request: Any) -> Verdict:
        return await self.policy.review(example_request(**request))

    async def confirm(self, made: Isolation, **request: Any) -> Verdict:
        return await self.policy.confirm(example_request(**request), made)

    async def allows(self, **request: Any) -> bool:
        return (await self.review(**request)).allowed


class TestRulesContract(PolicyContract):
    @pytest.fixture
    def policy(self, tmp_path: Path) -> RulesPolicy:
        return Ruled(tmp_path, '[[allow]]\nname = "read"\nfile_access = "read-only"\n').policy

    @pytest.fixture
    def requests(self) -> Requests:
        return Requests([example_request()], [example_request(file_access="full")])


async def test_without_an_allow_rule_what_is_not_denied_is_allowed(tmp_path: Path) -> None:
    ruled = Ruled(tmp_path, '[[deny]]\nname = "x"\nengine = "cursor"\n')
    assert await ruled.allows(engine="claude")
    verdict = await ruled.review(engine="cursor")
    assert (verdict.allowed, verdict.code, verdict.setting) == (False, "rules_deny", "plugin.authority.rules")
    assert "deny rule 'x' (rules.toml:1)" in verdict.reason


async def test_with_an_allow_rule_what_is_not_allowed_is_denied(tmp_path: Path) -> None:
    ruled = Ruled(tmp_path, '[[allow]]\nname = "x"\nengine = ["claude", "codex"]\n')
    assert await ruled.allows(engine="codex")
    assert (await ruled.review(engine="cursor")).code == "rules_no_allow"


async def test_deny_wins_wherever_it_stands_and_tells_its_reason(tmp_path: Path) -> None:
    text = '[[allow]]\nname = "all"\nengine = "*"\n[[deny]]\nname = "bob"\nuser = "bob"\nreason = "Bob is on leave."\n'
    ruled = Ruled(tmp_path, text)
    assert await ruled.allows(user="ann")
    assert (await ruled.review(user="bob")).reason == "Bob is on leave. [deny rule 'bob' (rules.toml:4)]"


@pytest.mark.parametrize(
    ("field", "value", "request_", "matches"),
    [
        ("driver", "docker", {"driver": "docker"}, True),
        ("driver", "docker", {"driver": "process"}, False),
        ("engine", "", {"engine": ""}, True),
        ("engine", "c*", {"engine": "codex"}, True),
        ("user", ["ann", "*@corp.example"], {"user": "bob@corp.example"}, True),
        ("user", "ann", {"user": "Ann"}, False),
        ("file_access", ["full"], {"file_access": "full"}, True),
        ("file_access", ["full"], {"file_access": "read-only"}, False),
        ("provider_key", "*", {"provider_keys": ()}, False),
        ("provider_key", "OPENAI_*", {"provider_keys": ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")}, True),
        ("pack", "sha256:abc", {"pack": "sha256:abc"}, True),
        ("pack", "", {"pack": ""}, True),
        ("time", "mon-fri 08:00-18:00", {}, True),
        ("time", ["sat,sun", "18:00-08:00"], {}, False),
    ],
)
async def test_each_field_matches_what_it_says(
    tmp_path: Path, field: str, value: str | Sequence[str], request_: dict[str, Any], matches: bool
) -> None:
    ruled = Ruled(tmp_path, f'[[deny]]\nname = "x"\n{field} = {value!r}\n')
    assert await ruled.allows(**request_) is not matches


async def test_all_fields_of_a_rule_have_to_match(tmp_path: Path) -> None:
    ruled = Ruled(tmp_path, '[[deny]]\nname = "x"\nuser = "bob"\nfile_access = "full"\n')
    assert await ruled.allows(user="bob")
    assert await ruled.allows(file_access="full", user="ann")
    assert not await ruled.allows(user="bob", file_access="full")


async def test_unless_makes_an_exception(tmp_path: Path) -> None:
    ruled = Ruled(tmp_path, '[[deny]]\nname = "x"\nfile_access = "full"\nunless = { user = "ops-*" }\n')
    assert not await ruled.allows(user="ann", file_access="full")
    assert await ruled.allows(user="ops-1", file_access="full")


async def test_of_several_keys_one_is_enough_to_forbid_and_all_are_needed_to_permit(tmp_path: Path) -> None:
    both = {"provider_keys": ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")}
    one = '\nname = "x"\nprovider_key = "ANTHROPIC_API_KEY"\n'
    assert not await Ruled(tmp_path, f"[[deny]]{one}").allows(**both)
    assert not await Ruled(tmp_path, f"[[allow]]{one}").allows(**both)
    assert await Ruled(tmp_path, f"[[allow]]{one}").allows(provider_keys=("ANTHROPIC_API_KEY",))
    excepted = '[[deny]]\nname = "x"\nprovider_key = "*"\nunless = { provider_key = "ANTHROPIC_API_KEY" }\n'
    assert not await Ruled(tmp_path, excepted).allows(**both)


async def test_a_tier_is_left_open_until_the_driver_attests_it(tmp_path: Path) -> None:
    ruled = Ruled(tmp_path, '[[allow]]\nname = "contained"\ntier = 2\n[[deny]]\nname = "old"\nimage = "sha256:old*"\n')
    verdict = await ruled.review()
    assert verdict.allowed
    assert "depends on the image and tier that the driver attests" in verdict.reason
    assert (await ruled.confirm(isolation(2, "sha256:new"))).allowed
    assert (await ruled.confirm(isolation(0))).code == "rules_no_allow"
    assert (await ruled.confirm(isolation(2, "sha256:old1"))).code == "rules_deny"


async def test_what_no_attestation_can_save_is_denied_before_the_creation(tmp_path: Path) -> None:
    ruled = Ruled(tmp_path, '[[allow]]\nname = "x"\ntier = 2\nuser = "ann"\n')
    assert await ruled.allows(user="ann")
    assert not await ruled.allows(user="bob")


async def test_times_are_meant_in_the_zone_of_the_file_and_pass_for_turns_too(tmp_path: Path) -> None:
    text = 'timezone = "Asia/Tokyo"\n[[allow]]\nname = "day"\ntime = "mon-fri 09:00-18:00"\n'
    assert not await Ruled(tmp_path, text).allows()  # noon in UTC is 21:00 there
    late = Ruled(tmp_path, text.replace("Asia/Tokyo", "UTC"), MONDAY_NOON + 6 * 3600)
    verdict = await late.policy.review_turn(TurnRequest("t", "s", example_request()))
    assert verdict.code == "rules_no_allow"


@pytest.mark.parametrize(
    ("text", "moment", "within"),
    [
        ("mon-fri 08:00-18:00", "2026-03-02 08:00", True),
        ("mon-fri 08:00-18:00", "2026-03-02 18:00", False),
        ("mon-fri 08:00-18:00", "2026-03-07 09:00", False),
        ("sat,sun", "2026-03-08 23:59", True),
        ("fri-mon", "2026-03-01 00:00", True),
        ("22:00-06:00", "2026-03-02 23:00", True),
        ("22:00-06:00", "2026-03-02 06:00", False),
        ("fri 22:00-06:00", "2026-03-07 05:59", True),
        ("fri 22:00-06:00", "2026-03-06 05:00", False),
        ("18:00-24:00", "2026-03-02 23:59", True),
    ],
)
def test_a_window_of_time(text: str, moment: str, within: bool) -> None:
    assert hours.parse(text).contains(datetime.fromisoformat(moment)) is within


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[deny]]\nname = "x"\nuser = "a"\nengin = "b"\n', "line 4: deny rule 'x' has no field 'engin'; did you mean"),
        ('[[deny]]\nname = "x"\n[[allow]]\nname = "x"\n', "line 3: allow rule 'x': another rule has that name"),
        ('[[deny]]\nuser = "a"\n', "line 1: deny rule 1 needs a name"),
        ('[[deny]]\nname = "x"\n\ntier = 3\n', "line 4: deny rule 'x', tier: 3 is no tier"),
        ('[[deny]]\nname = "x"\ntier = true\n', "True is no tier"),
        ('[[deny]]\nname = "x"\nfile_access = "write"\n', "'write' is none of read-only, workspace-write, full"),
        ('[[deny]]\nname = "x"\nuser = 7\n', "7 is not text"),
        ('[[deny]]\nname = "x"\nuser = []\n', "an empty list matches nothing"),
        ('[[deny]]\nname = "x"\ntime = "monday"\n', "'monday' in 'monday' is no weekday"),
        ('[[deny]]\nname = "x"\ntime = "25:00-26:00"\n', "is no time of day"),
        ('[[deny]]\nname = "x"\nunless = { usr = "a" }\n', "line 3: deny rule 'x', unless has no field 'usr'"),
        ('[deny]\nname = "x"\n', "line 1: write [[deny]], with two brackets"),
        ('timezone = "Mars/Base"\n[[deny]]\nname = "x"\n', "line 1: this host knows no time zone 'Mars/Base'"),
        ('[[deni]]\nname = "x"\n', "line 1: there is no 'deni'; did you mean deny?"),
        ("", "there is no rule in it"),
        ("[[deny]\n", "are not TOML"),
    ],
)  # fmt: skip
def test_a_fault_of_the_file_names_its_rule_and_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        read(path)
    assert said in error.value.message
    assert error.value.hint


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[deny]]\nname = "x"\ntier = 3\n[[allow]]\nnane = "y"\n')
    with pytest.raises(SettingsError, match=r"line 3: .*; line 4: .*; line 5: "):
        read(path)


def test_a_file_that_is_not_there_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read the rules") as error:
        rulefile.read(tmp_path / "none.toml")
    assert "plugin.authority.rules" in error.value.hint


# -- the ten rules of the how-to -------------------------------------------------------------------------

PAGE = docs.ROOT / "docs" / "how-to" / "admission.md"
CONTAINER = isolation(2, "registry.example.com/agents/base@sha256:0")
SATURDAY = datetime(2026, 3, 7, 12, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("rule", "wish", "made", "now"),
    [
        ("everybody has a name", {"user": ""}, CONTAINER, MONDAY_NOON),
        ("keys stay on the host", {"provider_keys": ("OPENAI_API_KEY",)}, CONTAINER, MONDAY_NOON),
        ("writing needs a container", {"file_access": "workspace-write"}, isolation(0), MONDAY_NOON),
        ("full access is for operators", {"file_access": "full"}, CONTAINER, MONDAY_NOON),
        ("contractors only read", {"user": "ext-kim", "file_access": "workspace-write"}, CONTAINER, MONDAY_NOON),
        ("our own images only", {}, isolation(2, "docker.io/somebody@sha256:1"), MONDAY_NOON),
        ("no changes at the weekend", {"file_access": "workspace-write"}, CONTAINER, SATURDAY),
        ("robots run signed packs", {"user": "ci-1"}, CONTAINER, MONDAY_NOON),
        ("no bare commands", {"engine": ""}, CONTAINER, MONDAY_NOON),
        ("approved engines", {}, CONTAINER, MONDAY_NOON),
    ],
)
async def test_each_of_the_ten_rules_of_the_how_to_decides(
    tmp_path: Path, rule: str, wish: dict[str, Any], made: Isolation, now: float
) -> None:
    [text] = re.findall(r"^```toml rules\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    ruled = Ruled(tmp_path, text, now)
    verdict = await ruled.confirm(made, **{"user": "ann", **wish})
    assert f"rule {rule!r}" in verdict.reason
    assert verdict.allowed is (rule == "approved engines")
    monday = Ruled(tmp_path, text)
    assert (await monday.confirm(CONTAINER, user="ops-1", file_access="full", engine="codex")).allowed
    assert (await monday.confirm(CONTAINER, user="ann", engine="cursor")).code == "rules_no_allow"
