"""The contract of every policy, and what the example's own Cedar policies say."""

from __future__ import annotations

from pathlib import Path

import pytest
from stockade_cedar.policy import CedarPolicy

from stockade.errors import SettingsError
from stockade.model.isolation import Isolation
from stockade.testing import PolicyContract
from stockade.testing.examples import Requests, example_request

EXAMPLE = Path(__file__).parents[1]
PATHS = {"policies": str(EXAMPLE / "policies.cedar"), "entities": str(EXAMPLE / "entities.json")}


def attested(tier: int) -> Isolation:
    return Isolation(tier, "-", "-", "-", "-", "-", False)  # type: ignore[arg-type]


@pytest.fixture
def policy() -> CedarPolicy:
    return CedarPolicy.from_options(PATHS)


class TestCedarContract(PolicyContract):
    @pytest.fixture
    def policy(self) -> CedarPolicy:
        return CedarPolicy.from_options(PATHS)

    @pytest.fixture
    def requests(self) -> Requests:
        return Requests(
            allowed=[example_request(user="ann"), example_request(user="olga", engine="cursor")],
            denied=[
                example_request(user="ann", engine="cursor"),
                example_request(user="nobody"),
                example_request(user="ann", provider_keys=("OPENAI_API_KEY",)),
                example_request(user='ann" || true || "'),
            ],
        )


async def test_a_denial_names_the_policy_that_forbids(policy: CedarPolicy) -> None:
    verdict = await policy.review(example_request(user="ann", provider_keys=("OPENAI_API_KEY",)))
    assert (verdict.code, verdict.reason) == ("cedar", "no provider key enters a sandbox")


async def test_full_access_waits_for_what_the_driver_attests(policy: CedarPolicy) -> None:
    request = example_request(user="ann", file_access="full")
    assert (await policy.review(request)).allowed
    assert (await policy.confirm(request, attested(2))).allowed
    assert (await policy.confirm(request, attested(0))).reason == "full file access only in a container"


async def test_a_policy_that_fails_is_a_deny() -> None:
    policy = CedarPolicy(
        "permit (principal, action, resource);"
        "forbid (principal, action, resource) when { context.ttl + 9223372036854775807 > 0 };"
    )
    assert (await policy.review(example_request())).code == "cedar_error"


@pytest.mark.parametrize(
    "text", ["permit (principal", "permit (principal, action, resource) when { context.egnine == 1 };"]
)
def test_policies_that_cannot_be_meant_refuse_the_boot(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.cedar"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"plugin\.cedar cannot be used"):
        CedarPolicy.from_options({"policies": str(path)})
