"""A lease is a signed permit to run: made by a small server or a command, checked before every creation."""
