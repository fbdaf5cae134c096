"""The driver acme of Stockade: a sandbox is a process tree in a PID namespace of this host, tier 0."""
