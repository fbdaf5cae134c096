"""The Docker driver of Stockade: a sandbox is a hardened container, tier 2."""
