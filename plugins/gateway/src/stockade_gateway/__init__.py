"""The ``model`` route: forwards an engine's model calls to a vendor, or answers them from a script."""
