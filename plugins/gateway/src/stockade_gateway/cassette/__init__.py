"""Cassettes: the model traffic of a run in a file, to be played back without a model, offline.

`tape` has the format, `checks` what of a request must be the same, `secrets` what is never written.
"""
