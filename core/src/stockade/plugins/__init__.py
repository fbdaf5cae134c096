"""Finding, listing, checking and calling plugins. Listing imports neither a plugin nor a library."""
