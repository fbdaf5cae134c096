"""The engine acme of Stockade: a small coding agent of its own, with a shell."""
