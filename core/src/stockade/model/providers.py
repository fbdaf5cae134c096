"""The environment variables by which model providers' keys are known (L80). Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable

NAMES = frozenset(
    {
        "AI21_API_KEY",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_FOUNDRY_API_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_API_KEY",
        "AZURE_OPENAI_AD_TOKEN",
        "AZURE_OPENAI_API_KEY",
        "CEREBRAS_API_KEY",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CODEX_ACCESS_TOKEN",
        "CODEX_API_KEY",
        "COHERE_API_KEY",
        "CO_API_KEY",
        "CURSOR_API_KEY",
        "CURSOR_AUTH_TOKEN",
        "DASHSCOPE_API_KEY",
        "DATABRICKS_TOKEN",
        "DEEPSEEK_API_KEY",
        "FIREWORKS_API_KEY",
        "GEMINI_API_KEY",
        "GITHUB_COPILOT_TOKEN",
        "GOOGLE_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_GENERATIVE_AI_API_KEY",
        "GROQ_API_KEY",
        "HF_TOKEN",
        "HUGGINGFACE_API_KEY",
        "HUGGING_FACE_HUB_TOKEN",
        "LITELLM_API_KEY",
        "LITELLM_MASTER_KEY",
        "MISTRAL_API_KEY",
        "MOONSHOT_API_KEY",
        "NVIDIA_API_KEY",
        "OLLAMA_API_KEY",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
        "PERPLEXITY_API_KEY",
        "REPLICATE_API_TOKEN",
        "TOGETHER_API_KEY",
        "VERTEX_API_KEY",
        "VOYAGE_API_KEY",
        "WATSONX_API_KEY",
        "XAI_API_KEY",
        "ZAI_API_KEY",
        "ZHIPUAI_API_KEY",
    }
)
"""Upper case. Add a provider here and nowhere else."""

_VENDORS = (
    "ANTHROPIC|AWS_BEDROCK|AZURE_OPENAI|CLAUDE|CODEX|COHERE|CURSOR|DEEPSEEK|FIREWORKS|GEMINI|GOOGLE|GROQ|"
    "MISTRAL|OPENAI|OPENROUTER|PERPLEXITY|TOGETHER|VERTEX|XAI"
)
# A vendor's next variable (OPENAI_ADMIN_KEY, ANTHROPIC_API_KEY_FILE_DESCRIPTOR) looks like its others.
_PATTERN = re.compile(rf"(?:.*_)?(?:{_VENDORS})_(?:.*_)?(?:API_?KEYS?|KEY|TOKEN|SECRET|CREDENTIALS)(?:_.*|\d+)?")


def provider_keys(names: Iterable[str]) -> tuple[str, ...]:
    """Those of ``names`` that hold a model provider's key, sorted; upper and lower case are the same."""
    return tuple(sorted({name for name in names if name.upper() in NAMES or _PATTERN.fullmatch(name.upper())}))
