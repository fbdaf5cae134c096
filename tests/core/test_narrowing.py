"""How answers of several plugins become one."""

import dataclasses
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.errors import PluginBroken, PluginError
from stockade.model.authority import ClaimLimits, Claims, Constraints
from stockade.model.providers import provider_keys
from stockade.model.turn import FILE_ACCESS
from stockade.plugins.answers import Answer
from stockade.runtime import narrowing

CLAIMS = Claims("s", "n", "t", "", "claude", 0, "model", expires=100.0, models=("a", "b"), requests=10)

limits = st.builds(
    Constraints,
    max_ttl=st.none() | st.floats(1, 1e6),
    file_access=st.none() | st.sampled_from(FILE_ACCESS),
    provider_keys=st.none() | st.booleans(),
    min_tier=st.none() | st.sampled_from((0, 1, 2)),
)
claim_limits = st.builds(
    ClaimLimits,
    expires=st.none() | st.floats(0, 200),
    models=st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    requests=st.none() | st.integers(0, 20),
    cost_microdollars=st.none() | st.integers(0, 20),
)


@given(st.lists(limits, max_size=4))
def test_no_constraint_is_wider_than_any_answer(answers: Sequence[Constraints]) -> None:
    merged = narrowing.constraints(answers)
    for answer in answers:
        if answer.max_ttl is not None:
            assert merged.max_ttl is not None
            assert merged.max_ttl <= answer.max_ttl
        if answer.file_access is not None:
            assert merged.file_access is not None
            assert FILE_ACCESS.index(merged.file_access) <= FILE_ACCESS.index(answer.file_access)
        if answer.provider_keys is False:
            assert merged.provider_keys is False
        if answer.min_tier is not None:
            assert merged.min_tier is not None
            assert merged.min_tier >= answer.min_tier


@given(st.lists(limits, max_size=3))
def test_the_order_of_constraints_never_matters(answers: list[Constraints]) -> None:
    assert len({narrowing.constraints(order) for order in itertools.permutations(answers)}) == 1


def test_without_an_opinion_there_is_no_limit() -> None:
    assert narrowing.constraints([Constraints(), Constraints()]) == Constraints()


@given(st.lists(claim_limits, max_size=3))
def test_claims_only_narrow_and_the_order_never_matters(answers: list[ClaimLimits]) -> None:
    results = {narrowing.claims(CLAIMS, order) for order in itertools.permutations(answers)}
    (merged,) = results
    assert merged.expires <= CLAIMS.expires
    assert merged.models is not None
    assert set(merged.models) <= set(CLAIMS.models or ())
    assert merged.requests is not None
    assert merged.requests <= 10
    assert (merged.sandbox, merged.turn, merged.audience) == ("s", "t", "model")


WIDER = {
    "expires": 200.0,
    "models": ("a", "b", "c"),
    "requests": 11,
    "input_tokens": 11,
    "output_tokens": 11,
    "cost_microdollars": 11,
}
NARROWER = {
    "expires": 50.0,
    "models": ("b",),
    "requests": 9,
    "input_tokens": 9,
    "output_tokens": 9,
    "cost_microdollars": 9,
}
LIMITED = dataclasses.replace(CLAIMS, input_tokens=10, output_tokens=10, cost_microdollars=10)


def test_what_a_hook_may_limit_is_all_tested_here() -> None:
    assert {field.name for field in dataclasses.fields(ClaimLimits)} == WIDER.keys() == NARROWER.keys()


@pytest.mark.requirement("L45")
@pytest.mark.parametrize("name", WIDER)
def test_a_limit_narrows_its_claim_and_never_widens_it(name: str) -> None:
    assert narrowing.claims(LIMITED, [ClaimLimits(**{name: WIDER[name]})]) == LIMITED
    narrowed = narrowing.claims(LIMITED, [ClaimLimits(**{name: NARROWER[name]})])
    assert narrowed == dataclasses.replace(LIMITED, **{name: NARROWER[name]})


@pytest.mark.requirement("L45")
@pytest.mark.parametrize("name", ["models", "requests", "input_tokens", "output_tokens", "cost_microdollars"])
def test_a_limit_applies_where_there_was_none(name: str) -> None:
    free = dataclasses.replace(LIMITED, **{name: None})
    assert narrowing.claims(free, [ClaimLimits(**{name: WIDER[name]})]) == dataclasses.replace(
        free, **{name: WIDER[name]}
    )


@pytest.mark.requirement("L45")
@pytest.mark.parametrize("name", ["sandbox", "session", "turn", "user", "engine", "tier", "audience", "pack"])
def test_no_hook_can_say_what_a_token_is_for(name: str) -> None:
    with pytest.raises(TypeError):
        ClaimLimits(**{name: "another"})


def test_limits_that_leave_no_model_leave_none() -> None:
    """Not: any model."""
    merged = narrowing.claims(CLAIMS, [ClaimLimits(models=("a",)), ClaimLimits(models=("b",))])
    assert merged.models == ()


def test_environments_merge_where_they_agree() -> None:
    answers = [Answer("a", {"X": "1", "Y": "2"}), Answer("b", {"X": "1", "Z": "3"})]
    assert narrowing.environment(answers) == {"X": "1", "Y": "2", "Z": "3"}


def test_a_conflict_names_both_plugins_and_no_value() -> None:
    with pytest.raises(PluginError, match=r"'a' and 'b'.*variable X") as caught:
        narrowing.environment([Answer("a", {"X": "secret1"}), Answer("b", {"X": "secret2"})])
    assert "secret" not in str(caught.value)


@pytest.mark.requirement("L44", "L80")
@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "CURSOR_API_KEY"])
def test_no_plugin_puts_a_providers_key_into_a_sandbox(name: str) -> None:
    with pytest.raises(PluginBroken, match=name) as caught:
        narrowing.environment([Answer("sneaky", {name: "sk-secret"})])
    assert caught.value.plugin == "sneaky"
    assert "sk-secret" not in str(caught.value)


@pytest.mark.requirement("L38")
@pytest.mark.parametrize(
    "name",
    ["STOCKADE_TIER", "STOCKADE_SANDBOX", "HOME", "PATH", "TMPDIR", "XDG_STATE_HOME", "IS_SANDBOX", "LD_PRELOAD"],
)
def test_no_plugin_sets_what_the_kernel_stamps(name: str) -> None:
    with pytest.raises(PluginBroken, match=name):
        narrowing.environment([Answer("sneaky", {name: "2"})])


@pytest.mark.parametrize("variables", [{"A=B": "1"}, {"1A": "1"}, {"Ä": "1"}, {"A\n": "1"}, {"A": "x\0y"}])
def test_a_variable_that_cannot_be_one_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(PluginBroken, match="cannot be an environment variable"):
        narrowing.environment([Answer("odd", variables)])


@pytest.mark.requirement("L80")
@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "CODEX_API_KEY",
        "CURSOR_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK", "AZURE_OPENAI_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "XAI_API_KEY",
        "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY", "anthropic_api_key", "OPENAI_API_KEY_2", "MY_OPENAI_API_KEY",
        "OPENAI_ADMIN_KEY", "ANTHROPIC_API_KEY_FILE_DESCRIPTOR",
    ],
)  # fmt: skip
def test_the_key_of_every_known_provider_is_found(name: str) -> None:
    assert provider_keys(["PATH", name]) == (name,)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "LANG",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_MODEL",
        "OPENAI_BASE_URL",
        "AWS_REGION",
        "KEY",
        "GIT_TOKEN",
    ],
)
def test_other_variables_are_no_providers_keys(name: str) -> None:
    assert provider_keys([name]) == ()
