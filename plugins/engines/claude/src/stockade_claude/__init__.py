"""The Claude engine: Claude Code, driven through claude-agent-sdk. Entry point ``stockade_claude.engine:ClaudeEngine``."""
