"""The policy acme of Stockade: no sandbox that lives too long, and none with a vendor's key in it."""
