"""The Claude engine: Claude Code, driven through claude-agent-sdk. It is `stockade_claude.engine:ClaudeEngine`."""
