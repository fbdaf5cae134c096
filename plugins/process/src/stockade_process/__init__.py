"""The process driver of Stockade: a sandbox is a process tree on this host, tier 0 (no boundary)."""
