"""The policy passes the contract kit, and refuses settings that it does not understand."""

from typing import Any

import pytest

from stockade.errors import SettingsError
from stockade.testing import PolicyContract
from stockade.testing.examples import Requests, example_request
from stockade_acme.policy import AcmePolicy


class TestAcmePolicy(PolicyContract):
    @pytest.fixture
    def policy(self) -> AcmePolicy:
        return AcmePolicy({"max_ttl": 900})

    @pytest.fixture
    def requests(self) -> Requests:
        return Requests(
            allowed=[example_request(ttl=900.0)],
            denied=[example_request(ttl=901.0), example_request(ttl=60.0, provider_keys=("OPENAI_API_KEY",))],
        )


@pytest.mark.parametrize("options", [{"max_ttl": 0}, {"max_ttl": "1h"}, {"provider_keys": "no"}, {"maxttl": 60}])
def test_a_wrong_setting_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        AcmePolicy(options)
