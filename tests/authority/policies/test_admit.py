"""``stockade admit`` says what would be decided, by whom, and because of which setting; and makes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.cli.app import main
from stockade.errors import SettingsError
from stockade.runtime.registry import Registry
from stockade_authority.policies.config import read_options

RULES = """\
[[deny]]
name = "no keys inside"
provider_key = "*"
reason = "keys stay on the host"

[[allow]]
name = "developers"
user = "ann"
tier = [1, 2]
"""

Admit = Callable[..., tuple[int, str]]


@pytest.fixture
def admit(only_authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Admit:
    """Runs the command with the rules above and a quota; gives the exit status and what was printed."""
    (tmp_path / "rules.toml").write_text(RULES)
    monkeypatch.setenv("STOCKADE_PLUGIN__AUTHORITY__RULES", str(tmp_path / "rules.toml"))
    monkeypatch.setenv("STOCKADE_PLUGIN__AUTHORITY__QUOTA__SANDBOXES", "1")
    monkeypatch.setenv("STOCKADE_PLUGIN__AUTHORITY__QUOTA__TURNS", "1")

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["admit", *arguments])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def test_explain_shows_every_policy_with_its_time_setting_and_reason(admit: Admit) -> None:
    code, said = admit("--explain", "--user", "ann", "--engine", "null", "--tier", "2")
    lines = said.splitlines()
    assert code == 0
    assert lines[0].split() == ["STEP", "POLICY", "PLUGIN", "VERDICT", "TIME", "SETTING", "REASON"]
    assert [line.split()[:4] for line in lines[1:6]] == [
        ["turn", "quota", "authority", "allow"],
        ["turn", "rules", "authority", "allow"],
        ["review", "quota", "authority", "allow"],
        ["review", "rules", "authority", "allow"],
        ["confirm", "rules", "authority", "allow"],
    ]
    assert " ms  plugin.authority.quota  " in lines[3]
    assert "plugin.authority.rules" in lines[5]
    assert "allow rule 'developers' (rules.toml:6)" in lines[5]
    assert lines[6] == "admitted"


def test_json_has_the_request_and_every_decision(admit: Admit) -> None:
    code, said = admit("--json", "--user", "ann", "--env-pass", "OPENAI_API_KEY")
    answer = json.loads(said)
    assert (code, answer["admitted"], answer["request"]["provider_keys"]) == (1, False, ["OPENAI_API_KEY"])
    assert answer["request"]["driver"] == "memory"
    [quota, rules] = answer["decisions"]
    assert (quota["policy"], quota["allowed"]) == ("quota", True)
    assert (rules["code"], rules["setting"]) == ("rules_deny", "plugin.authority.rules")
    assert rules["reason"] == "keys stay on the host [deny rule 'no keys inside' (rules.toml:1)]"
    assert rules["seconds"] >= 0


def test_what_only_a_driver_can_know_is_said_to_be_open(admit: Admit) -> None:
    code, said = admit("--user", "ann")
    assert (code, said.splitlines()[0]) == (0, "admitted, as far as can be said before the driver attests")
    code, said = admit("--user", "ann", "--tier", "0")
    assert (code, said.splitlines()[0]) == (1, "denied")
    assert "no allow rule of rules.toml matches" in said


def test_it_takes_no_place_and_leaves_no_row(admit: Admit, only_authority: Path) -> None:
    for _ in range(3):
        assert admit("--user", "ann", "--engine", "null")[0] == 0
    registry = Registry(only_authority)
    assert registry.rows() == []
    registry.close()
    assert not (only_authority / "evidence").exists()


DRY = """\
from stockade import AdmissionPolicy, hookimpl
from stockade.model.authority import Verdict


class Dry(AdmissionPolicy):
    name = "dry"
    told = 0

    async def review(self, request):
        return Verdict.allow("only a question") if request.dry_run else Verdict.deny("this is meant")

    async def review_turn(self, request):
        Dry.told += 1
        return await self.review(request.sandbox)

    async def turn_ended(self, request):
        Dry.told -= 1


@hookimpl
def admission_policies(settings):
    return [Dry()]
"""


def test_every_plugin_is_asked_and_sees_that_it_is_a_dry_run(
    only_authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    info = tmp_path / "site" / "dry_corp-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dry-corp\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[stockade.plugins]\ndry-corp = dry_corp\n")
    (tmp_path / "site" / "dry_corp.py").write_text(DRY)
    monkeypatch.setenv("STOCKADE_PLUGINS", "authority-bench,dry-corp")
    assert main(["admit", "--explain", "--engine", "null"]) == 0
    out = capsys.readouterr().out
    assert out.count("only a question") == 2
    assert "plugin.dry_corp" in out  # the table that it may have, as it names no setting
    import dry_corp  # type: ignore[import-not-found]

    assert dry_corp.Dry.told == 0


def test_a_required_policy_that_is_missing_is_shown_with_its_setting(
    admit: Admit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKADE_ADMISSION__REQUIRED", "corp")
    code, said = admit("--explain", "--user", "ann")
    assert code == 1
    assert "deny required" in said
    assert "admission.required" in said


def test_without_any_policy_it_says_how_to_have_one(only_authority: Path, capsys: Any) -> None:
    assert main(["admit", "--explain"]) == 0
    assert "no policy is active: set plugin.authority.rules" in capsys.readouterr().out


def test_an_image_without_a_tier_is_refused(admit: Admit) -> None:
    code, said = admit("--image", "sha256:1")
    assert (code, "give --tier too" in said) == (2, True)


def test_a_fault_in_the_rules_refuses_to_start(admit: Admit, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(RULES + 'usr = "x"\n')
    code, said = admit("--user", "ann")
    assert code == 2
    assert "line 10: allow rule 'developers' has no field 'usr'; did you mean user?" in said


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"rule": "x"}, "plugin.authority.rule: no such setting; did you mean rules?"),
        ({"quota": {}}, "plugin.authority.quota: say how many of what: sandboxes, sandboxes_per_user"),
        ({"quota": {"sandboxes": -1}}, "plugin.authority.quota.sandboxes: "),
        ({"quota": {"sandboxes": "9"}}, "plugin.authority.quota.sandboxes: "),
        ({"quota": {"sandboxes_per_key": 1}}, "no such setting; did you mean sandboxes_per_user?"),
    ],
)
def test_a_setting_that_is_none_is_named(table: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_options(table)
    assert said in error.value.message
