"""The Codex engine: OpenAI's Codex, driven through openai-codex. It is `stockade_codex.engine:CodexEngine`."""
