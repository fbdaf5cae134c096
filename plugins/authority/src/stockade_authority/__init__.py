"""Who may run what: warrants and their keys, revocation, admission policies."""
